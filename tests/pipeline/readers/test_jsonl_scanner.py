"""The scanner agrees with Python's json module on any bytes, wherever blocks, slices and frames are cut."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.readers.bytes_kernel import REASONS
from pipeline.readers.contract import InputSource, ReadOptions
from pipeline.readers.jsonl import Scanner
from tests.pipeline.readers.reading import read_path, write

SCANNER = Scanner(InputSource("s", ("x",), origin_field="url"), ReadOptions(max_depth=20))
WHITE_SPACE = set(
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
    "\u202f\u205f\u3000"
)
SYNTAX = {"invalid_json", "invalid_utf8", "nul_byte", "too_deep"}


class Pairs(list):
    """A JSON object as its pairs, so that repeated keys can be seen."""


def refuse(name: str) -> Any:
    raise ValueError(name)


def strings_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in strings_in(item)]
    return []


def depth_of(value: Any) -> int:
    if isinstance(value, Pairs):
        return 1 + max((depth_of(item) for _, item in value), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


def expected(line: bytes) -> tuple[Any, ...] | None:
    """None for a blank line, ("ok", text, url, other pairs), or ("bad", the reasons that fit)."""
    if not line.strip(b" \t\r"):
        return None
    try:
        value = json.loads(line.decode("utf-8"), object_pairs_hook=Pairs, parse_constant=refuse)
    except (ValueError, RecursionError):
        return "bad", SYNTAX
    if depth_of(value) > 20:
        return "bad", {"too_deep"}
    if not isinstance(value, Pairs):
        return "bad", {"not_an_object"}
    if any(0xD800 <= ord(c) <= 0xDFFF for text in strings_in(value) for c in text):
        return "bad", {"lone_surrogate"}
    texts = [item for key, item in value if key == "text"]
    if not texts:
        return "bad", {"missing_text"}
    text = texts[-1]
    if not isinstance(text, str):
        return "bad", {"null_text" if text is None else "text_not_string"}
    if "\0" in text:
        return "bad", {"nul_byte"}
    if set(text) <= WHITE_SPACE:
        return "bad", {"empty_text"}
    is_url = [key == "url" and isinstance(item, str) and item != "" for key, item in value]
    urls = [item for (_, item), yes in zip(value, is_url, strict=True) if yes]
    rest = Pairs(pair for pair, yes in zip(value, is_url, strict=True) if not yes and pair[0] != "text")
    return "ok", text, urls[-1] if urls else "", rest


def scan(data: bytes) -> dict[int, tuple[Any, ...]]:
    """Line start -> outcome, by the kernel."""
    block = np.zeros(len(data) // 8 * 8 + 8, np.uint8)
    block[: len(data)] = np.frombuffer(data, np.uint8)
    outcome: dict[int, tuple[Any, ...]] = {}
    at = 0
    while at < len(data):
        found = SCANNER.scan(block, at, len(data))
        for array in (found.text, found.meta, found.origin):
            array.validate(full=True)
        columns = [array.to_pylist() for array in (found.text, found.origin, found.meta)]
        for begin, text, url, meta in zip(found.good.tolist(), *columns, strict=True):
            outcome[begin] = ("ok", text, url, json.loads(meta, object_pairs_hook=Pairs))
        for (begin, end, _), code in zip(found.bad.tolist(), found.codes.tolist(), strict=True):
            assert end == (data + b"\n").index(b"\n", begin)
            outcome[begin] = ("bad", REASONS[code])
        at = found.stop
    return outcome


def check(data: bytes) -> None:
    outcome = scan(data)
    at = 0
    seen = 0
    for line in data.split(b"\n"):
        wanted = expected(line)
        assert (wanted is None) == (at not in outcome), line
        if wanted is not None:
            seen += 1
            got = outcome[at]
            if wanted[0] == "bad":
                assert got[0] == "bad" and got[1] in wanted[1], (line, got, wanted)
            else:
                assert got == wanted, line
        at += len(line) + 1
    assert seen == len(outcome)


characters = st.characters(codec="utf-8") | st.sampled_from('\0\n"\\/\u2028\u00a0\U0001f600é漢')
texts = st.text(characters, max_size=30)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
keys = st.sampled_from(["text", "text", "url", "id", "texts", "tex"]) | texts
objects = st.lists(st.tuples(keys, values | texts), max_size=5)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """One line of JSON: mostly objects, any key order, repeated keys, escapes or raw characters, odd blanks."""
    if draw(st.integers(0, 9)) == 0:
        return json.dumps(draw(values)).encode()
    ascii_only = draw(st.booleans())
    parts = []
    for key, value in draw(objects):
        name = json.dumps(key, ensure_ascii=ascii_only)
        if draw(st.integers(0, 5)) == 0 and key:
            name = '"' + "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in key) + '"'
        blank = draw(st.sampled_from(["", " ", "\t", "\r", "  "]))
        parts.append(f"{name}{blank}:{blank}" + json.dumps(value, ensure_ascii=ascii_only))
    joint = draw(st.sampled_from([",", ", ", " ,\t"]))
    return (draw(st.sampled_from(["", " "])) + "{" + joint.join(parts) + "}").encode()


@given(st.lists(lines(), max_size=6))
@settings(max_examples=150, deadline=None)
def test_agrees_with_json_on_sound_lines(content: list[bytes]) -> None:
    check(b"\n".join(content))


PIECES = [b'"', b"\\", b"\\u", b"\\ud83d", b"\\ude00", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\r", b"\0", b"NaN"]
PIECES += [b"-", b"0", b"01", b"1e5", b"1.", b".5", b"true", b"nul", b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xe2\x80"]
PIECES += [b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\x1f", b"\x7f", b'"text":"x"', b'"text":null', b"\xe3\x80\x80"]


@given(st.lists(lines(), min_size=1, max_size=3), st.data())
@settings(max_examples=300, deadline=None)
def test_agrees_with_json_on_damaged_lines(content: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"\n".join(content))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole)))
        cut = data.draw(st.integers(0, 2))
        whole[at : at + cut] = data.draw(st.sampled_from(PIECES) | st.binary(max_size=2))
    check(bytes(whole))


@pytest.mark.parametrize("text", ["a" * n + tail for n in range(18) for tail in ("", "é", "漢", "😀", '"', "\\", "\n")])
def test_every_alignment(text: str) -> None:
    for ascii_only in (True, False):
        check(json.dumps({"text": text + "x", "n": 1}, ensure_ascii=ascii_only).encode())


def test_every_start_of_a_multi_byte_sequence() -> None:
    """All lead bytes with all second bytes, completed with sound ones: overlong forms, surrogates, above U+10FFFF."""
    bodies = [
        bytes([lead, second]) + rest
        for lead in range(0x80, 0x100)
        for second in range(0x80, 0x100)
        for rest in (b"", b"\x80", b"\x80\x80", b"\xbf\xbf")
    ]
    outcome = scan(b"\n".join(b'{"text":"a' + body + b'"}' for body in bodies))
    assert len(outcome) == len(bodies)
    for body, (_, got) in zip(bodies, sorted(outcome.items()), strict=True):
        try:
            assert got[:2] == ("ok", "a" + body.decode("utf-8")), body
        except UnicodeDecodeError:
            assert got == ("bad", "invalid_utf8"), body


def test_depth_is_bounded() -> None:
    deep = b'{"text":"ok","x":' + b"[" * 19 + b"]" * 19 + b"}"
    assert scan(deep)[0][0] == "ok"
    for bad in (b'{"text":"ok","x":' + b"[" * 20 + b"]" * 20 + b"}", b"[" * 100_000, b'{"a":' * 100_000):
        assert scan(bad)[0] == ("bad", "too_deep")


@given(st.lists(lines(), max_size=8), st.integers(1, 200), st.integers(1, 300), st.booleans())
@settings(max_examples=40, deadline=None)
def test_cuts_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, content: list[bytes], target: int, block: int, final: bool
) -> None:
    """Any byte ranges, blocks and compressions give the same documents, ids and quarantine rows."""
    data = b"\n".join(content) + (b"\n" if final else b"")
    folder = tmp_path_factory.mktemp("cuts")
    whole = read_path(write(folder / "a.jsonl", data))
    small = ReadOptions(batch_bytes=block, batch_rows=2)
    cut = read_path(folder / "a.jsonl", target=target, options=small)
    assert (cut.rows, cut.entries) == (whole.rows, whole.entries)
    if not data:
        return
    half = len(data) // 2
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(data[:half]) + gzip.compress(b"") + gzip.compress(data[half:]))
    compress = zstandard.ZstdCompressor().compress
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    (folder / "a.jsonl.zst").write_bytes(compress(data[:half]) + skippable + compress(data[half:]))
    for name in ("a.jsonl.gz", "a.jsonl.zst"):
        packed = read_path(folder / name, options=small)
        assert [(r["text"], r["meta"]) for r in packed.rows] == [(r["text"], r["meta"]) for r in whole.rows]
        assert packed.aside == whole.aside


def test_limit_holds_for_any_block(tmp_path: Path) -> None:
    long = json.dumps({"text": "a" * 5000}).encode()
    data = b'{"text":"x"}\n' + long + b'\n{"text":"y"}\n' + long
    path = write(tmp_path / "a.jsonl", data)
    for block in (16, 3000, 1 << 20):
        outcome = read_path(path, options=ReadOptions(max_document_bytes=1000, batch_bytes=block))
        assert outcome.texts == ["x", "y"]
        assert outcome.aside == [(13, "record_too_large"), (data.rindex(b"{"), "record_too_large")]
        assert all(entry["head"] == long[:200] for entry in outcome.entries)
