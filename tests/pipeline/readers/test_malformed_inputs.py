"""Every case of the malformed-input collection: what must be delivered, set aside, or reported for the file."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard

from tests.pipeline.readers.reading import Outcome, read_path

DATA = os.environ.get("PREP_TEST_DATA")
FOLDER = Path(DATA or "") / "malformed"
CASES = [json.loads(line) for line in (FOLDER / "expected.jsonl").read_text().splitlines()] if DATA else []
needs_data = pytest.mark.skipif(not DATA, reason="set PREP_TEST_DATA to the folder that holds malformed/expected.jsonl")

FILE_REASONS = {
    "empty file": {"empty_file"},
    "truncated gzip": {"truncated_stream"},
    "truncated zstd": {"truncated_stream"},
    "data after the last member": {"trailing_garbage"},
    "gzip checksum": {"corrupt_stream"},
    "zstd checksum": {"corrupt_stream"},
    "corrupt gzip": {"corrupt_stream"},
    "not gzip": {"not_compressed"},
    "not text": {"unexpected_binary"},
    "text is not a string column": {"text_column_not_string"},
    "no column text": {"no_text_column"},
    "not Parquet (footer missing)": {"corrupt_file"},
    "corrupt row group 5": {"corrupt_row_group"},
    "not Parquet": {"corrupt_file"},
}
REASONS = {
    "null text": "null_text",
    "no text field": "missing_text",
    "nested objects, no text": "too_deep",
    "empty text": "empty_text",
    "blank text": "empty_text",
    "not JSON": "invalid_json",
    "two objects in one line": "invalid_json",
    "JSON, not an object": "not_an_object",
    "invalid UTF-8": "invalid_utf8",
    "lone surrogate": "lone_surrogate",
    "raw NUL byte": "nul_byte",
    "line of NUL bytes": "nul_byte",
    "U+0000": "nul_byte",
    "text is not a string": "text_not_string",
    "nested": "too_deep",
}


def ids_of(outcome: Outcome) -> list[object]:
    return [json.loads(row["meta"], parse_int=parse_int).get("id") for row in outcome.rows]


def parse_int(digits: str) -> int | str:
    """Python refuses to read integers of more than 4,300 digits; the reader keeps them as they stand."""
    return int(digits) if len(digits) < 4000 else digits


def may_deliver(case: dict) -> list[str]:
    """Ids of the `either` list, ranges such as "t-000 to t-068" written out."""
    ids = []
    for item in case["either"]:
        found = re.fullmatch(r"(\w+-)(\d+) to \w+-(\d+)", item["id"] or "")
        if found:
            prefix, first, last = found.groups()
            ids += [f"{prefix}{k:0{len(first)}d}" for k in range(int(first), int(last) + 1)]
        else:
            ids.append(item["id"])
    return ids


def records_by_plain_python(path: Path) -> dict[str, str]:
    """id -> text of the lines of a sound JSONL file or rows of a Parquet file, by other means than the readers."""
    if path.suffix == ".parquet":
        rows = pq.ParquetFile(path).read(columns=["id", "text"], use_threads=False).to_pylist()
        return {row["id"]: row["text"] for row in rows}
    raw = path.read_bytes()
    if path.suffix == ".zst":
        raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw), read_across_frames=True).read()
    elif path.suffix == ".gz":
        raw = gzip.decompress(raw)
    texts = {}
    for line in raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        try:
            record = json.loads(line, parse_int=parse_int)
            texts[record["id"]] = record["text"]
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
    return texts


@needs_data
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["file"])
def test_every_malformed_file(case: dict) -> None:
    path = FOLDER / case["file"]
    nested = case["file"] == "pq_nested_text.parquet"
    outcome = read_path(path, text_field="doc.text" if nested else "text")
    delivered = ids_of(outcome)
    optional = may_deliver(case)
    assert [i for i in delivered if i not in optional] == [i for i in case["deliver"] if i not in optional]

    positions = dict(outcome.aside)
    for item in case["quarantine"]:
        position = item["line"] if path.suffix == ".parquet" else item["offset"]
        assert position in positions, item
        known = [reason for why, reason in REASONS.items() if item["why"].startswith(why)]
        assert positions[position] == known[0], item
    placed = {(i["line"] if path.suffix == ".parquet" else i["offset"]) for i in case["quarantine"] + case["either"]}
    if "corrupt_stream" not in outcome.file_reasons:  # what follows the damage may decode to anything
        assert positions.keys() <= placed
    ranged = any(item["line"] is None for item in case["either"])
    if not ranged and not outcome.file_reasons:
        count = len(case["deliver"]) + len(case["quarantine"]) + len(case["either"])
        assert len(delivered) + len(positions) == count

    wanted = FILE_REASONS.get(case["file_error"] or "", set())
    assert wanted <= set(outcome.file_reasons)
    if case["file_error"] is None and not ranged and case["file"] != "utf16.jsonl":
        assert not outcome.file_reasons
    for entry in outcome.entries:
        assert entry["source"] == "s" and entry["path"] == path.name and len(entry["head"]) <= 200


SOUND = [c["file"] for c in CASES if c["deliver"] and c["file"] not in {
    "trailing_garbage.jsonl.gz", "pq_corrupt_row_group.parquet", "pq_invalid_utf8.parquet", "pq_nested_text.parquet",
    "duplicate_ids.jsonl",
}]  # fmt: skip


@needs_data
@pytest.mark.parametrize("name", SOUND)
def test_text_is_delivered_unchanged(name: str) -> None:
    texts = records_by_plain_python(FOLDER / name)
    outcome = read_path(FOLDER / name)
    assert outcome.rows
    for identifier, row in zip(ids_of(outcome), outcome.rows, strict=True):
        assert row["text"] == texts[identifier]


@needs_data
def test_big_line_arrives_whole() -> None:
    outcome = read_path(FOLDER / "big_line.jsonl.zst")
    digest = hashlib.sha256(outcome.texts[1].encode()).hexdigest()
    assert digest == "ab26026643673165662f882363233699283c7bac522fc76f94f14a669e712153"


@needs_data
def test_truncated_and_damaged_streams_deliver_a_prefix() -> None:
    for name, best in (("truncated.jsonl.gz", 69), ("truncated.jsonl.zst", 57)):
        assert (
            ids_of(read_path(FOLDER / name))
            == [f"t-{k:03d}" for k in range(best)][: len(read_path(FOLDER / name).rows)]
        )


@needs_data
def test_parquet_with_another_text_column() -> None:
    assert len(read_path(FOLDER / "pq_no_text_column.parquet", text_field="content").rows) == 4
