"""Word classes of code points, and the tables that hold them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

OTHER = 0  # punctuation, symbols, controls: between words
LETTER = 1  # letters of scripts with spaces
DIGIT = 2  # numbers and connectors such as "_": word characters that are not letters
SINGLE = 3  # Han, Hiragana, Katakana: each character a word
CLUSTER = 4  # Thai, Lao, Khmer, Myanmar: each base character with its marks a word
MARK = 5  # combining marks: continue the word before them
APOSTROPHE = 6  # joins two letters
SPACE = 7  # White_Space
NUMBER_POINT = 8  # "." and ",": join two digits

CODE_POINTS = 0x110000


class Tables(NamedTuple):
    """Lookup tables over all code points, read-only and shared."""

    word: npt.NDArray[np.uint8]  # word class
    fold: npt.NDArray[np.uint32]  # simple lower case
    nfc: npt.NDArray[np.uint8]  # 1 where NFC may change text


def _expand(runs: str) -> npt.NDArray[np.uint8]:
    pairs = np.array([run.split(",") for run in runs.split()], dtype=np.int64)
    return np.repeat(pairs[:, 1].astype(np.uint8), pairs[:, 0])


@lru_cache(maxsize=1)
def tables() -> Tables:
    """Build the tables once per process (about 10 ms)."""
    from pipeline.text import _unicode_tables as generated

    fold = np.arange(CODE_POINTS, dtype=np.uint32)
    pairs = np.array([pair.split(",") for pair in generated.FOLDS.split()], dtype=np.int64)
    fold[pairs[:, 0]] = pairs[:, 1]
    result = Tables(_expand(generated.WORD_RUNS), fold, _expand(generated.NFC_RUNS))
    for table in result:
        table.flags.writeable = False
    return result
