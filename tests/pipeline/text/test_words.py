"""Words, counts and hashes: the kernel equals a plain reference for any text, batch and slice."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.text import classes
from pipeline.text.buffers import text_buffers, text_of
from pipeline.text.generate_tables import render, word_class
from pipeline.text.words import COUNTS, segment, word_hashes

NO_STOPS = np.empty(0, dtype=np.uint64)
# Letters with and without case, marks, digits, joiners, CJK, Thai, Hangul, blanks, dots, bullets, astral characters.
ALPHABET = "aZéßÅ\u0301\u0e01\u0e34\u0e48中文ひカー한글09٣_'’.,-•…# \t\n\u3000\u00a0😀𝒳𠀀ﬁ"
texts = st.text(alphabet=st.one_of(st.sampled_from(ALPHABET), st.characters(exclude_categories=("Cs",))), max_size=60)


def reference_words(text: str) -> list[str]:
    """The definition in docs/rules.md, written for clarity."""
    words: list[str] = []
    word, kind, last = "", classes.OTHER, classes.OTHER
    for i, char in enumerate(text):
        cls = word_class(ord(char))
        following = word_class(ord(text[i + 1])) if i + 1 < len(text) else classes.OTHER
        if cls == classes.MARK:
            joins = kind != classes.OTHER
        elif kind != classes.LETTER:
            joins = False
        elif cls in (classes.LETTER, classes.DIGIT):
            joins = True
        elif cls == classes.APOSTROPHE:
            joins = last == classes.LETTER and following == classes.LETTER
        else:
            joins = cls == classes.NUMBER_POINT and last == classes.DIGIT and following == classes.DIGIT
        if joins:
            word += char
            last = last if cls == classes.MARK else cls
            continue
        if word:
            words.append(word)
        word, kind = "", classes.OTHER
        if cls in (classes.LETTER, classes.DIGIT, classes.SINGLE, classes.CLUSTER):
            word, last = char, cls
            kind = classes.LETTER if cls == classes.DIGIT else cls
    return [*words, word] if word else words


def reference_counts(text: str) -> dict[str, int]:
    words = reference_words(text)
    letters = (classes.LETTER, classes.SINGLE, classes.CLUSTER)
    blanks = "".join(chr(p) for p in range(0x3001) if word_class(p) == classes.SPACE)
    lines = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n") if text else []
    return {
        "chars": len(text),
        "words": len(words),
        "word_chars": sum(map(len, words)),
        "alpha_words": sum(any(word_class(ord(c)) in letters for c in word) for word in words),
        "number_signs": text.count("#"),
        "ellipses": text.count("...") + text.count("…"),
        "lines": len(lines),
        "bullet_lines": sum(line.lstrip(blanks).startswith(("•", "-")) for line in lines),
        "ellipsis_lines": sum(line.rstrip(blanks).endswith(("...", "…")) for line in lines),
        "stop_words": 0,
    }


@settings(max_examples=400, deadline=None)
@given(texts)
def test_words_equal_the_reference(text: str) -> None:
    table = segment(text_of([text]), NO_STOPS)
    words = reference_words(text)
    expected = [segment(text_of([word]), NO_STOPS).hashes.tolist() for word in words]
    assert [[h] for h in table.hashes.tolist()] == expected
    assert dict(zip(COUNTS, table.counts[0].tolist(), strict=True)) == reference_counts(text)


@settings(max_examples=100, deadline=None)
@given(st.lists(texts, max_size=8), st.integers(0, 4), st.booleans())
def test_any_batch_and_slice_gives_the_same(strings: list[str], start: int, large: bool) -> None:
    array = pa.array(strings, pa.large_string() if large else pa.string()).slice(start)
    table = segment(text_buffers(array), NO_STOPS)
    for i, text in enumerate(strings[start:]):
        alone = segment(text_of([text]), NO_STOPS)
        assert table.hashes[table.offsets[i] : table.offsets[i + 1]].tolist() == alone.hashes.tolist()
        assert table.counts[i].tolist() == alone.counts[0].tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World! It's 1,234.56 — don’t", ["Hello", "World", "It's", "1,234.56", "don’t"]),
        ("今天天气 is nice", ["今", "天", "天", "气", "is", "nice"]),
        ("データ처리 중", ["デ", "ー", "タ", "처리", "중"]),
        ("สวัสดี", ["ส", "วั", "ส", "ดี"]),
        ("snake_case x2 3.", ["snake_case", "x2", "3"]),
        ("مرحبا بالعالم", ["مرحبا", "بالعالم"]),
        ("rock 'n' roll", ["rock", "n", "roll"]),
        ("--- ... !!!", []),
    ],
)
def test_words_of_many_scripts(text: str, words: list[str]) -> None:
    assert reference_words(text) == words
    assert segment(text_of([text]), NO_STOPS).counts[0][1] == len(words)


def test_words_are_compared_in_lower_case_and_with_one_apostrophe() -> None:
    upper, lower = word_hashes(["ÉCOLE", "DON’T"]), word_hashes(["école", "don't"])
    assert upper.tolist() == lower.tolist()


def test_stop_words_count_different_ones() -> None:
    stops = word_hashes(["the", "and"])
    table = segment(text_of(["The the THE theme", "and the", ""]), stops)
    assert table.counts[:, COUNTS.index("stop_words")].tolist() == [1, 2, 0]


def test_no_two_words_of_real_length_collide() -> None:
    words = [f"w{i}" for i in range(200_000)]
    assert len(np.unique(segment(text_of([" ".join(words)]), NO_STOPS).hashes)) == len(words)


def test_a_text_column_with_nulls_or_of_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="nulls"):
        text_buffers(pa.array(["a", None], pa.large_string()))
    with pytest.raises(TypeError, match="int64"):
        text_buffers(pa.array([1]))


@pytest.mark.slow
def test_the_committed_tables_are_those_of_the_generator_where_the_unicode_version_is_the_same() -> None:
    import unicodedata

    from pipeline.text import _unicode_tables as committed

    if unicodedata.unidata_version != committed.UNICODE_VERSION:
        pytest.skip(f"tables are of Unicode {committed.UNICODE_VERSION}, this Python has {unicodedata.unidata_version}")
    namespace: dict[str, str] = {}
    exec(render(), namespace)
    assert namespace["WORD_RUNS"] == committed.WORD_RUNS
    assert namespace["NFC_RUNS"] == committed.NFC_RUNS
    assert namespace["FOLDS"] == committed.FOLDS
