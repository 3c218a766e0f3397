"""Rules: definitions on hand-made documents, strict thresholds, overrides, and mistakes named with a remedy."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pipeline.judge import Judge, judges, load_rule_set, resolve_rules, rule_sets
from pipeline.plan import steps_of
from pipeline.steps import Step, build_steps, check_steps
from schemas.arrow import RAW_DOCUMENT
from schemas.config import parse_model
from schemas.errors import UserError
from schemas.recipe import Language, Recipe, RuleOverride, RuleSpec

FILLER = "the quick brown foxes and their friends have jumped over lazy dogs "


def recipe(**changes: object) -> Recipe:
    values = {"name": "r", "output": "o", "sources": [{"name": "s", "paths": ["x"]}], **changes}
    return parse_model(Recipe, values, "recipe")


def scored(texts: list[str], config: Recipe) -> pa.RecordBatch:
    count = len(texts)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([bytes([i]) * 16 for i in range(count)], RAW_DOCUMENT.field("doc_id").type),
            pa.array(texts, pa.large_string()),
            pa.array(["s"] * count),
            pa.array([f"f#{i}" for i in range(count)]),
            pa.array(["{}"] * count, pa.large_string()),
        ],
        schema=RAW_DOCUMENT,
    )
    return build_steps(steps_of(config))(batch)


def verdicts(texts: list[str], config: Recipe) -> list[str | None]:
    judge = judges(config)["s"]
    codes, _ = judge.judge(scored(texts, config))
    return [None if code < 0 else judge.reasons[code] for code in codes]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FILLER * 10, None),
        (FILLER * 4 + "one", "gopher_short_doc"),  # 49 words
        (FILLER * 4 + "one two", None),  # 50 words: a document at the threshold passes
        ("a be of to " * 20, "gopher_below_avg_threshold"),
        ("extraordinarily incomprehensible " * 26 + "the and", "gopher_above_avg_threshold"),
        (FILLER * 10 + "#" * 13, "gopher_too_many_hashes"),
        (FILLER * 10 + "#" * 12, None),  # 12 of 120 words: exactly 0.1
        ("... " * 13 + FILLER * 10, "gopher_too_many_ellipsis"),
        ("\n".join(["- " + FILLER] * 10), "gopher_too_many_bullets"),
        ("\n".join(["- " + FILLER] * 9 + [FILLER]), None),  # 9 of 10 lines
        ("\n".join([FILLER + "..."] * 4 + [FILLER] * 6), "gopher_too_many_end_ellipsis"),
        (FILLER * 5 + "123 " * 20, "gopher_below_alpha_threshold"),
        ("quick brown foxes jumped over lazy dogs near old green houses " * 6, "gopher_enough_stop_words"),
        ("今天天气很好我们去公园散步" * 10, None),  # no word length, no English stop words asked of Chinese
        (" \n ", "empty_after_normalization"),
    ],
)
def test_gopher(text: str, reason: str | None) -> None:
    stated = {"name": "s", "paths": ["x"], "lang": "zh" if "今" in text else "en"}
    assert verdicts([text], recipe(sources=[stated])) == [reason]


def test_the_first_rule_that_holds_gives_reason_and_value() -> None:
    config = recipe(sources=[{"name": "s", "paths": ["x"], "lang": "en"}])
    judge = judges(config)["s"]
    codes, values = judge.judge(scored(["# # #", FILLER * 10], config))
    assert judge.reasons[codes[0]] == "gopher_short_doc" and values[0] == 0
    assert codes[1] == -1 and values[1] != values[1]


def test_languages_that_are_not_kept_and_low_scores_go() -> None:
    texts = [FILLER * 10, "今天天气很好，我们去公园散步。" * 10]
    assert verdicts(texts, recipe(language={"keep": ["zh"]}))[0] == "language"
    assert verdicts(texts, recipe(language={"keep": ["en", "zh"]})) == [None, None]
    assert verdicts(["a b c d " * 20], recipe(language={"min_score": 1.0}, rules=[])) == ["language"]


def test_overrides_change_and_remove_rules_of_a_set() -> None:
    rules = resolve_rules(
        [
            "gopher",
            RuleOverride(reason="gopher_too_many_hashes", drop_if="> 0.5"),
            RuleOverride(reason="gopher_long_doc"),
            RuleSpec(signal="line_count", drop_if="> 9", reason="many_lines"),
        ]
    )
    by_reason = {rule.reason: rule for rule in rules}
    assert by_reason["gopher_too_many_hashes"].condition() == (">", 0.5)
    assert "gopher_long_doc" not in by_reason and rules[-1].reason == "many_lines"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["gofer"], "unknown rule set 'gofer'; did you mean 'gopher'?"),
        ([RuleOverride(reason="gopher_shrt_doc")], "no rule before gives the reason"),
        ([RuleSpec(signal="word_cuont", drop_if="< 1", reason="r")], "did you mean 'word_count'?"),
    ],
)
def test_mistakes_in_rules_name_the_nearest(items: list[object], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        resolve_rules(items)  # type: ignore[arg-type]


@pytest.mark.parametrize("condition", ["0.1", "> x", "=> 1", "> 1 2", "> nan", ""])
def test_a_condition_that_is_none_is_refused(condition: str) -> None:
    with pytest.raises(UserError, match="is not a condition"):
        parse_model(RuleSpec, {"signal": "s", "drop_if": condition, "reason": "r"}, "rule")


def test_every_rule_set_resolves_and_its_reasons_are_distinct() -> None:
    for name in rule_sets():
        rules = load_rule_set(name)
        assert len({rule.reason for rule in rules}) == len(rules)
        assert Judge(Language(), resolve_rules([name])).columns


def test_a_step_that_misses_a_column_is_refused() -> None:
    step = Step("near_fingerprint", needs=("_word_hashes",), gives=("bands",), build=lambda: lambda batch: batch)
    with pytest.raises(UserError, match="needs the column '_word_hashes'"):
        check_steps([step], RAW_DOCUMENT.names)
