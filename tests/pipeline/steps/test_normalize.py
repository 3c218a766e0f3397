"""Normalisation equals a plain reference for any text and any switches."""

from __future__ import annotations

import re
import unicodedata

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.steps.normalize import normalize_texts
from pipeline.text import classes
from pipeline.text.generate_tables import WHITE_SPACE
from schemas.recipe import Normalize

ALPHABET = "ab é e\u0301\u1100\u1161\u11a8\r\n\t\x00\x07\x0b\x0c\x7f\x85\x9f\ufeff\u2028\u3000\u00a0中\u0344\u2000"
switches = st.builds(
    Normalize,
    line_ends=st.booleans(),
    control_characters=st.booleans(),
    nfc=st.booleans(),
    trailing_blanks=st.booleans(),
)
BLANK = "".join(chr(point) for point in sorted(WHITE_SPACE - {0x0A}))


def reference(text: str, config: Normalize) -> str:
    if config.line_ends:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if config.control_characters:
        text = re.sub("[\x0b\x0c\x85]", "\n", text)
        text = re.sub("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufeff]", "", text)
    if config.trailing_blanks:
        lines = [line.rstrip(BLANK) for line in text.split("\n")]
        while lines and not lines[0]:
            lines.pop(0)
        while lines and not lines[-1]:
            lines.pop()
        text = "\n".join(lines)
    return unicodedata.normalize("NFC", text) if config.nfc else text


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.text(
            alphabet=st.one_of(
                st.sampled_from(ALPHABET), st.characters(exclude_categories=("Cs",), max_codepoint=0x2FFFF)
            ),
            max_size=20,
        ),
        max_size=5,
    ),
    switches,
)
def test_normalisation_equals_the_reference(texts: list[str], config: Normalize) -> None:
    found = normalize_texts(pa.array(texts, pa.large_string()), config)
    assert found.type == pa.large_string()
    assert found.to_pylist() == [reference(text, config) for text in texts]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30))
def test_normalisation_is_idempotent(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    once = normalize_texts(pa.array([text], pa.large_string()), Normalize())
    assert normalize_texts(once, Normalize()).equals(once)


def test_every_character_that_nfc_changes_is_flagged() -> None:
    nfc = classes.tables().nfc
    changed = [
        p for p in range(0x110000) if not 0xD800 <= p < 0xE000 and unicodedata.normalize("NFC", chr(p)) != chr(p)
    ]
    assert all(nfc[p] for p in changed)
