"""Rules on columns: which documents go, why, and the value that tripped the rule. No text is read."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from pipeline.signals import SIGNAL_NAMES
from schemas.config import parse_model
from schemas.errors import UserError
from schemas.recipe import Comparison, Language, Recipe, RuleItem, RuleOverride, RuleSpec

COMPARE: dict[Comparison, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
}
KEPT = -1


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"


def rule_sets() -> tuple[str, ...]:
    """Names of the rule sets that come with the program."""
    names = (entry.name for entry in files("pipeline.rules").iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


@cache
def load_rule_set(name: str) -> tuple[RuleSpec, ...]:
    """The rules of a set. Raises UserError, naming the nearest set, if there is none of that name."""
    if name not in rule_sets():
        raise UserError(f"unknown rule set {name!r}; {_nearest(name, rule_sets())}")
    items = yaml.safe_load(files("pipeline.rules").joinpath(f"{name}.yaml").read_text(encoding="utf-8"))
    return tuple(parse_model(RuleSpec, item, f"{name}.yaml") for item in items)


def resolve_rules(items: Sequence[RuleItem]) -> tuple[RuleSpec, ...]:
    """Expand sets and apply changes, in order. Raises UserError on an unknown set, signal or reason."""
    rules: list[RuleSpec] = []
    for item in items:
        if isinstance(item, str):
            rules += load_rule_set(item)
        elif isinstance(item, RuleSpec):
            rules.append(item)
        else:
            rules = _override(rules, item)
    for rule in rules:
        if rule.signal not in SIGNAL_NAMES:
            raise UserError(
                f"rule {rule.reason}: unknown signal {rule.signal!r}; {_nearest(rule.signal, SIGNAL_NAMES)}"
            )
    return tuple(rules)


def _override(rules: list[RuleSpec], change: RuleOverride) -> list[RuleSpec]:
    reasons = [rule.reason for rule in rules]
    if change.reason not in reasons:
        raise UserError(f"no rule before gives the reason {change.reason!r}; {_nearest(change.reason, reasons)}")
    if change.drop_if is None:
        return [rule for rule in rules if rule.reason != change.reason]
    return [
        rule.model_copy(update={"drop_if": change.drop_if}) if rule.reason == change.reason else rule for rule in rules
    ]


@dataclass(frozen=True)
class Judge:
    """The rules of one source, resolved. `reasons` lists every reason it can give, in order."""

    language: Language
    rules: tuple[RuleSpec, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        return ("empty_after_normalization", "language", *(rule.reason for rule in self.rules))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that `judge` reads."""
        return tuple(dict.fromkeys(["lang", "lang_score", "char_count", *(rule.signal for rule in self.rules)]))

    def judge(self, columns: pa.RecordBatch) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.float64]]:
        """(index into `reasons` or KEPT, value that tripped) of each row; the first reason that holds counts."""
        count = columns.num_rows
        verdict = np.full(count, KEPT, dtype=np.int16)
        value = np.full(count, np.nan)

        def drop(index: int, mask: npt.NDArray[np.bool_], values: npt.NDArray[Any]) -> None:
            hit = mask & (verdict == KEPT)
            verdict[hit] = index
            value[hit] = values[hit]

        chars = columns.column("char_count").to_numpy()
        drop(0, chars == 0, chars)
        lang = columns.column("lang")
        score = pc.fill_null(columns.column("lang_score"), 0.0).to_numpy(zero_copy_only=False)
        if self.language.enabled and (self.language.keep is not None or self.language.min_score > 0):
            other = np.zeros(count, dtype=np.bool_)
            if self.language.keep is not None:
                other = ~_is_in(lang, self.language.keep)
            drop(1, other | (score < self.language.min_score), score)
        for index, rule in enumerate(self.rules, start=2):
            comparison, threshold = rule.condition()
            values = columns.column(rule.signal).to_numpy()
            mask = COMPARE[comparison](values, threshold)
            if rule.languages is not None:
                mask &= _is_in(lang, rule.languages)
            if rule.except_languages is not None:
                mask &= ~_is_in(lang, rule.except_languages)
            drop(index, mask, values)
        return verdict, value


def _is_in(lang: pa.Array, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    found = pc.is_in(lang, value_set=pa.array(names, pa.string()))
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)


def judges(recipe: Recipe) -> dict[str, Judge]:
    """The judge of each source. Raises UserError on any mistake in the rules."""
    result = {}
    for source in recipe.sources:
        items = recipe.rules if source.rules is None else source.rules
        try:
            result[source.name] = Judge(recipe.language, resolve_rules(items))
        except UserError as error:
            raise UserError(f"rules of source {source.name!r}: {error}") from None
    return result
