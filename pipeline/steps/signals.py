"""Words and quality signals of each document, from one segmentation."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.signals import SIGNAL_NAMES, STOP_WORDS_EN
from pipeline.steps import BatchFunction, Step, set_column
from pipeline.text import words as w
from pipeline.text.buffers import text_buffers

WORD_HASHES = "_word_hashes"


def ratio(counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """counts / totals, 0 where totals is 0; float64."""
    return np.divide(counts, totals, out=np.zeros(len(counts), dtype=np.float64), where=totals > 0)


def signal_columns(table: w.WordTable, byte_counts: np.ndarray) -> dict[str, np.ndarray]:
    """All signals of `pipeline.signals`, float64, in its order."""
    count = {name: table.counts[:, i] for i, name in enumerate(w.COUNTS)}
    values = {
        "byte_count": byte_counts,
        "char_count": count["chars"],
        "word_count": count["words"],
        "mean_word_length": ratio(count["word_chars"], count["words"]),
        "hash_word_ratio": ratio(count["number_signs"], count["words"]),
        "ellipsis_word_ratio": ratio(count["ellipses"], count["words"]),
        "line_count": count["lines"],
        "bullet_line_fraction": ratio(count["bullet_lines"], count["lines"]),
        "ellipsis_line_fraction": ratio(count["ellipsis_lines"], count["lines"]),
        "alpha_word_fraction": ratio(count["alpha_words"], count["words"]),
        "stop_word_count": count["stop_words"],
    }
    return {name: values[name].astype(np.float64) for name in SIGNAL_NAMES}


def signals() -> Step:
    """Adds every signal, and the word hashes for the fingerprint step."""

    def build() -> BatchFunction:
        stops = w.word_hashes(list(STOP_WORDS_EN))

        def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
            text = text_buffers(batch.column("text"))
            table = w.segment(text, stops)
            for name, values in signal_columns(table, np.diff(text.offsets)).items():
                batch = set_column(batch, name, pa.array(values))
            hashes = pa.LargeListArray.from_arrays(pa.array(table.offsets), pa.array(table.hashes))
            return set_column(batch, WORD_HASHES, hashes)

        return apply

    return Step("signals", needs=("text",), gives=(*SIGNAL_NAMES, WORD_HASHES), build=build)
