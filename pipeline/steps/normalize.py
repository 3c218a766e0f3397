"""Text normalisation: NFC, control characters, line ends, trailing blanks, each with a switch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.steps import BatchFunction, Step, set_column
from pipeline.text.buffers import text_array, text_buffers
from pipeline.text.clean import clean_text
from schemas.recipe import Normalize


def compose(texts: pa.Array, rows: np.ndarray) -> pa.Array:
    """`texts` with the given rows in NFC; the others, which are in NFC already, are not touched."""
    if len(rows) == 0:
        return texts
    composed = pc.utf8_normalize(texts.take(pa.array(rows)), form="NFC")
    if len(rows) == len(texts):
        return composed
    mask = np.zeros(len(texts), dtype=np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(texts, pa.array(mask), composed)


def normalize_texts(texts: pa.Array, config: Normalize) -> pa.Array:
    """large_string in, large_string out."""
    data, offsets, needs_nfc = clean_text(
        text_buffers(texts),
        line_ends=config.line_ends,
        control_characters=config.control_characters,
        trailing_blanks=config.trailing_blanks,
    )
    cleaned = text_array(data, offsets)
    return compose(cleaned, np.flatnonzero(needs_nfc)) if config.nfc else cleaned


def normalize(config: Normalize) -> Step:
    """The step for `config`."""

    def build() -> BatchFunction:
        return lambda batch: set_column(batch, "text", normalize_texts(batch.column("text"), config))

    return Step("normalize", needs=("text",), gives=("text",), build=build)
