"""Defects of files, inline: the most important cases stand here so that a bare clone checks them."""

from __future__ import annotations

import gzip
import json
import struct
import tracemalloc
from pathlib import Path

import pytest
import xxhash
import zstandard

from pipeline.inputs import list_inputs, split_tasks
from pipeline.readers.contract import InputSource, ReadOptions
from pipeline.readers.dispatch import read_task
from tests.pipeline.readers.reading import read_path, write

GOOD = b'{"id":1,"text":"one"}\n{"id":2,"text":"two"}\n{"text":"three \\ud83d\\ude00","id":3}'
TEXTS = ["one", "two", "three 😀"]


def lines(count: int) -> bytes:
    return b"".join(json.dumps({"text": f"document {k} {k * 7919 % 1000}"}).encode() + b"\n" for k in range(count))


def test_ids_origins_and_meta(tmp_path: Path) -> None:
    outcome = read_path(write(tmp_path / "a.jsonl", GOOD))
    assert outcome.texts == TEXTS
    assert [row["origin"] for row in outcome.rows] == ["a.jsonl#0", "a.jsonl#22", "a.jsonl#44"]
    assert [row["meta"] for row in outcome.rows] == ['{"id":1}', '{"id":2}', '{"id":3}']
    assert len({row["doc_id"] for row in outcome.rows}) == 3
    assert {row["source"] for row in outcome.rows} == {"s"}


def test_ids_do_not_change(tmp_path: Path) -> None:
    """Ids are in published shards; a change of the scheme must be a decision."""
    row = read_path(write(tmp_path / "a.jsonl", GOOD)).rows[1]
    assert row["doc_id"].hex() == "ecd9ef2ed2a2395cdc9019669e73ba3a"
    high, low = struct.unpack(">QQ", xxhash.xxh3_128_digest(b"s\0a.jsonl"))
    assert row["doc_id"] == struct.pack(">QQ", high ^ splitmix64(22), low ^ murmur64(22))


def splitmix64(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def murmur64(x: int) -> int:
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD % 2**64
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 % 2**64
    return x ^ x >> 33


def test_origin_field(tmp_path: Path) -> None:
    data = b'{"url":"http://a","text":"x"}\n{"url":null,"text":"y"}\n{"url":"","text":"z"}\n'
    outcome = read_path(write(tmp_path / "a.jsonl", data), origin_field="url")
    assert [row["origin"] for row in outcome.rows] == ["http://a", "a.jsonl#30", "a.jsonl#54"]
    assert [row["meta"] for row in outcome.rows] == ["{}", '{"url":null}', '{"url":""}']


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_compression_changes_nothing(tmp_path: Path, name: str) -> None:
    assert read_path(write(tmp_path / name, GOOD)).texts == TEXTS


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_cut_stream_gives_whole_records_and_one_entry(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.jsonl{ending}", lines(20_000))
    whole = read_path(path).texts
    data = path.read_bytes()
    for keep in (5, 12, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:keep])
        outcome = read_path(path)
        assert outcome.file_reasons == ["truncated_stream"] and not outcome.aside
        assert outcome.texts == whole[: len(outcome.rows)]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.jsonl", b"", "empty_file"),
        ("a.jsonl.gz", b"", "empty_file"),
        ("a.parquet", b"", "empty_file"),
        ("a.jsonl.gz", GOOD, "not_compressed"),
        ("a.jsonl.zst", GOOD, "not_compressed"),
        ("a.jsonl", gzip.compress(GOOD), "unexpected_binary"),
        ("a.jsonl", zstandard.compress(GOOD), "unexpected_binary"),
        ("a.txt", b"PK\x03\x04\x00...", "unexpected_binary"),
        ("a.jsonl", GOOD.decode().encode("utf-16"), "invalid_utf8"),
        ("a.jsonl", GOOD.decode().encode("utf-16-le"), "invalid_utf8"),
        ("a.jsonl.gz", gzip.compress(GOOD.decode().encode("utf-16")), "invalid_utf8"),
        ("a.parquet", GOOD, "corrupt_file"),
        ("a.parquet", b"PAR1" + GOOD, "corrupt_file"),
    ],
)
def test_file_level_entry(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    outcome = read_path(path, target=7)  # cut in many slices, still reported once
    assert (outcome.rows, outcome.aside, outcome.file_reasons) == ([], [], [reason])


def test_data_after_the_last_member(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD) + b"\0" * 100)
    assert (read_path(path).texts, read_path(path).file_reasons) == (TEXTS, [])
    path.write_bytes(gzip.compress(GOOD) + b"\0\0garbage")
    assert (read_path(path).texts, read_path(path).file_reasons) == (TEXTS, ["trailing_garbage"])


def test_wrong_checksums_are_reported(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "a.jsonl.zst"):
        path = write(tmp_path / name, GOOD)
        data = bytearray(path.read_bytes())
        data[-6 if name.endswith("gz") else -1] ^= 1
        path.write_bytes(bytes(data))
        assert read_path(path).file_reasons == ["corrupt_stream"]


def test_file_that_vanished(tmp_path: Path) -> None:
    source = InputSource("s", (str(write(tmp_path / "a.jsonl", GOOD)),))
    tasks = split_tasks(source, list_inputs(source), 1000)
    (tmp_path / "a.jsonl").unlink()
    (batch,) = read_task(tasks[0])
    assert batch.quarantine.column("reason").to_pylist() == ["unreadable_file"]
    assert str(tmp_path) not in str(batch.quarantine.column("detail"))


def test_bomb_in_bounded_memory(tmp_path: Path) -> None:
    """100 MB of one letter: set aside without ever holding more than the limit, the lines around delivered."""
    path = write(tmp_path / "a.jsonl.zst", b'{"text":"x"}\n{"text":"' + b"a" * 100_000_000 + b'"}\n{"text":"y"}\n')
    tracemalloc.start()
    outcome = read_path(path, options=ReadOptions(max_document_bytes=1 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert outcome.texts == ["x", "y"] and outcome.aside == [(13, "record_too_large")]
    assert peak < 60_000_000


def test_text_files(tmp_path: Path) -> None:
    cases = {
        "a.py": (b"\xef\xbb\xbfx = 1\r\n", "x = 1\r\n"),
        "b.txt": (b" \n\xc2\xa0", "empty_text"),
        "c.txt": (b"caf\xe9", "invalid_utf8"),
        "d.txt": (b"a\0b", "nul_byte"),
    }
    for name, (data, _) in cases.items():
        write(tmp_path / name, data)
    write(tmp_path / "e.md.gz", b"# packed")
    outcome = read_path(tmp_path)
    assert outcome.texts == ["x = 1\r\n", "# packed"]
    assert [(entry["path"], entry["reason"]) for entry in outcome.entries] == [
        (name, wanted) for name, (_, wanted) in cases.items() if name != "a.py"
    ]
    assert [row["origin"] for row in outcome.rows] == ["a.py#0", "e.md.gz#0"]


PAGE = """<html><head><meta charset="{charset}"><title>A title</title><style>p {{}}</style></head><body>
<nav><a href="/">Home</a></nav><main><p>The first paragraph, café and all, long enough to be content.</p>
<p>The second paragraph, naïve and long enough to be content as well.</p></main><script>x()</script></body></html>"""


def test_html(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(PAGE.format(charset="iso-8859-1").encode("latin-1"))
    (tmp_path / "b.html").write_bytes(PAGE.format(charset="utf-8").encode())
    (tmp_path / "c.html").write_bytes(b"<html><body><script>1</script></body></html>")
    (tmp_path / "d.html").write_bytes(PAGE.format(charset="utf-8").encode("latin-1"))
    (tmp_path / "e.html").write_bytes(PAGE.format(charset="x").encode("utf-16"))
    (tmp_path / "f.html").write_bytes(b"<div>" * 100_000 + b"<p>deep</p>")
    (tmp_path / "g.html").write_bytes(b"<p>a\0b</p>")
    outcome = read_path(tmp_path)
    assert [row["origin"] for row in outcome.rows] == ["a.html#0", "b.html#0", "e.html#0"]
    for text in outcome.texts:
        assert "content.\n\nThe second paragraph, naïve" in text and "x()" not in text
    assert json.loads(outcome.rows[0]["meta"]) == {"title": "A title", "charset": "cp1252"}
    assert [(e["path"], e["reason"]) for e in outcome.entries] == [
        ("c.html", "html_unparsable"),
        ("d.html", "invalid_utf8"),
        ("f.html", "html_unparsable"),
        ("g.html", "nul_byte"),
    ]
