"""Language identification: known texts, short and empty ones, and the model loaded once."""

from __future__ import annotations

import pyarrow as pa

from pipeline.steps.language import identify, language, load_model
from schemas.recipe import Recipe


def test_languages_of_plain_sentences() -> None:
    texts = [
        "The cat sat on the mat and looked at us.",
        "今天天气很好,我们去公园散步吧。",
        "Der Hund läuft\ndurch den Garten.",
        "",
    ]
    langs, scores = identify(pa.array(texts, pa.large_string()))
    assert langs.to_pylist()[:3] == ["en", "zh", "de"]
    assert all(0 <= score <= 1 for score in scores.to_pylist())


def test_a_stated_language_is_not_identified() -> None:
    recipe = Recipe.model_validate({
        "name": "r", "output": "o", "sources": [{"name": "s", "paths": ["x"], "lang": "de"}]
    })  # fmt: skip
    batch = pa.RecordBatch.from_pydict({"source": ["s"], "text": pa.array(["The cat"], pa.large_string())})
    result = language(recipe).build()(batch)
    assert result.column("lang").to_pylist() == ["de"] and result.column("lang_score").to_pylist() == [1.0]


def test_the_model_is_loaded_once() -> None:
    assert load_model() is load_model()


def test_blanks_that_are_not_ascii_part_words_too() -> None:
    text = "The parser reads a file and returns every section with its options and their values. "
    plain, joined, wide = (text, text.replace(" ", "\u00a0"), text.replace(" ", "\u3000"))
    langs, scores = identify(pa.array([plain, joined, wide], pa.large_string()))
    assert langs.to_pylist() == ["en"] * 3
    assert len(set(scores.to_pylist())) == 1
