"""One segmentation for every signal, shingle and n-gram: words, their hashes, and counts per document.

A word is a run of letters and digits with their marks; an apostrophe between letters and "." or "," between digits
join. Han, Hiragana and Katakana characters are words of their own, and so is each base character (with marks) of
Thai, Lao, Khmer and Myanmar, which are written without spaces. Words are compared in simple lower case.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.text.buffers import Text
from pipeline.text.classes import APOSTROPHE, CLUSTER, DIGIT, LETTER, MARK, NUMBER_POINT, OTHER, SINGLE, SPACE, tables
from pipeline.text.jit import kernel
from pipeline.text.utf8 import GOLDEN, decode, fmix64

# Columns of the count matrix.
COUNTS = (
    "chars",
    "words",
    "word_chars",
    "alpha_words",
    "number_signs",
    "ellipses",
    "lines",
    "bullet_lines",
    "ellipsis_lines",
    "stop_words",
)
CHARS, WORDS, WORD_CHARS, ALPHA_WORDS, NUMBER_SIGNS, ELLIPSES, LINES, BULLET_LINES, ELLIPSIS_LINES, STOP_WORDS = range(
    10
)
ELLIPSIS = 0x2026
BULLETS = (0x2022, 0x2D)


class WordTable(NamedTuple):
    """Words of a batch: document i owns hashes[offsets[i]:offsets[i + 1]]."""

    hashes: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.int64]  # n + 1
    counts: npt.NDArray[np.int64]  # (n, len(COUNTS))


@kernel(inline="always")
def _absorb(h, point):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    h = (h ^ np.uint64(point)) * GOLDEN
    return h ^ (h >> np.uint64(29))


@kernel
def _count_words(data, offsets, word_class, fold, stops, hashes, word_offsets, counts):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    total = 0
    word_offsets[0] = 0
    for doc in range(len(offsets) - 1):
        i, end = offsets[doc], offsets[doc + 1]
        first_word = total
        chars = word_chars = alpha_words = number_signs = ellipses = 0
        lines = bullet_lines = ellipsis_lines = 0
        seen_stops = 0
        kind = OTHER  # class that decides what may continue the open word; OTHER: none is open
        h = np.uint64(0)
        length = 0
        alpha = False
        last = OTHER
        line_start = True  # nothing but blanks in this line so far
        bullet = False
        dots = 0  # run of full stops at this point
        tail_dots = 0  # the same at the last character that is no blank
        tail_ellipsis = False
        blank_before = False
        # A text that does not end with a line feed is read as if it did: that closes its last word and line.
        unclosed = end > i and data[end - 1] != 0x0A
        while i < end or unclosed:
            if i < end:
                point, size = decode(data, i)
                i += size
                chars += 1
            else:
                point = np.uint32(0x0A)
                unclosed = False
            cls = word_class[point]

            # Lines and ellipses.
            if point == 0x2E:
                dots += 1
            elif dots:
                ellipses += dots // 3
                dots = 0
            if point == 0x0A:
                lines += 1
                bullet_lines += bullet
                ellipsis_lines += tail_ellipsis or tail_dots >= 3
                line_start, bullet, tail_dots, tail_ellipsis, blank_before = True, False, 0, False, False
            elif cls == SPACE:
                blank_before = True
            else:
                if line_start:
                    line_start = False
                    bullet = point == BULLETS[0] or point == BULLETS[1]
                if point == 0x2E:
                    tail_dots = 1 if blank_before else tail_dots + 1
                else:
                    tail_dots = 0
                tail_ellipsis = point == ELLIPSIS
                ellipses += tail_ellipsis
                number_signs += point == 0x23
                blank_before = False

            # Words.
            joins = False
            if cls == MARK:
                joins = kind != OTHER
            elif kind == LETTER:
                if cls == LETTER or cls == DIGIT:
                    joins = True
                elif i < end:
                    if cls == APOSTROPHE:
                        joins = last == LETTER and word_class[decode(data, i)[0]] == LETTER
                        point = np.uint32(0x27)
                    elif cls == NUMBER_POINT:
                        joins = last == DIGIT and word_class[decode(data, i)[0]] == DIGIT
            if joins:
                h = _absorb(h, fold[point])
                length += 1
                alpha = alpha or cls == LETTER
                if cls != MARK:
                    last = cls
                continue
            if kind != OTHER:
                h = fmix64(h)
                hashes[total] = h
                total += 1
                word_chars += length
                alpha_words += alpha
                if length <= 4:
                    for s in range(len(stops)):
                        if stops[s] == h:
                            seen_stops |= 1 << s
                kind = OTHER
            if cls == LETTER or cls == DIGIT or cls == SINGLE or cls == CLUSTER:
                kind = LETTER if cls == DIGIT else cls
                h = _absorb(np.uint64(0), fold[point])
                length = 1
                alpha = cls != DIGIT
                last = cls
        word_offsets[doc + 1] = total
        stop_words = 0
        for s in range(len(stops)):
            stop_words += (seen_stops >> s) & 1
        row = counts[doc]
        row[CHARS] = chars
        row[WORDS] = total - first_word
        row[WORD_CHARS] = word_chars
        row[ALPHA_WORDS] = alpha_words
        row[NUMBER_SIGNS] = number_signs
        row[ELLIPSES] = ellipses
        row[LINES] = lines
        row[BULLET_LINES] = bullet_lines
        row[ELLIPSIS_LINES] = ellipsis_lines
        row[STOP_WORDS] = stop_words
    return total


def segment(text: Text, stops: npt.NDArray[np.uint64]) -> WordTable:
    """Cut a batch into words.

    `stops`: at most 63 word hashes of at most four characters; `stop_words` counts how many *different* ones occur.
    Memory: 8 bytes for every two bytes of text, at most, while the batch is worked on.
    """
    n = len(text.offsets) - 1
    hashes = np.empty(_most_words(text), dtype=np.uint64)
    offsets = np.empty(n + 1, dtype=np.int64)
    counts = np.empty((n, len(COUNTS)), dtype=np.int64)
    lookup = tables()
    total = _count_words(text.data, text.offsets, lookup.word, lookup.fold, stops, hashes, offsets, counts)
    return WordTable(hashes[:total], offsets, counts)


def _most_words(text: Text) -> int:
    # Two words of one byte need a separator between them, and a SINGLE or CLUSTER word has three bytes: a document of
    # b bytes has at most (b + 1) / 2 words.
    bytes_in = int(text.offsets[-1] - text.offsets[0])
    return bytes_in // 2 + len(text.offsets)


def word_hashes(words: list[str]) -> npt.NDArray[np.uint64]:
    """The hashes of single words, as they occur in running text. Raises ValueError if one is not exactly one word."""
    from pipeline.text.buffers import text_of

    table = segment(text_of(words), np.empty(0, dtype=np.uint64))
    if not np.array_equal(table.offsets, np.arange(len(words) + 1)):
        raise ValueError(f"each of {words} must be one word")
    return table.hashes
