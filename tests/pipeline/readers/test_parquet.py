"""Parquet: types of the text column, rows set aside, leftover columns as JSON, cuts at row groups."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.readers.contract import ReadOptions
from tests.pipeline.readers.reading import read_path

TEXTS = ["one", None, "", " \u3000", "a\0b", "zwei \U0001f600"]
ASIDE = [(1, "null_text"), (2, "empty_text"), (3, "empty_text"), (4, "nul_byte")]


def store(path: Path, columns: dict[str, Any], rows: int = 2) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=rows)
    return path


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.binary()],
    ids=str,
)
def test_text_types(tmp_path: Path, kind: pa.DataType) -> None:
    if kind == pa.binary():
        column = pa.array([None if t is None else t.encode() for t in TEXTS], kind)
    else:
        column = pa.array(TEXTS).cast(kind) if not pa.types.is_dictionary(kind) else pa.array(TEXTS).dictionary_encode()
    outcome = read_path(store(tmp_path / "a.parquet", {"text": column}))
    assert outcome.texts == ["one", "zwei \U0001f600"] and outcome.aside == ASIDE
    assert [row["origin"] for row in outcome.rows] == ["a.parquet#0", "a.parquet#5"]


def test_invalid_utf8_in_any_column(tmp_path: Path) -> None:
    bad = pa.array([b"x", b"\xff", b"y"]).view(pa.string())
    nested = pa.StructArray.from_arrays([pa.array([b"\xc0\xaf", b"ok", b"ok"]).view(pa.string())], ["n"])
    outcome = read_path(store(tmp_path / "a.parquet", {"text": bad, "nested": nested}))
    assert outcome.texts == ["y"] and outcome.aside == [(0, "invalid_utf8"), (1, "invalid_utf8")]
    assert "nested" in outcome.entries[0]["detail"]


def test_leftover_columns_are_json(tmp_path: Path) -> None:
    columns = {
        "text": ["x", "y"],
        "string": ['q"\\\n\x01é', None],
        "int": pa.array([2**63 - 1, None], pa.int64()),
        "float": [1.0, float("nan")],
        "bool": [True, None],
        "decimal": [decimal.Decimal("1.10"), None],
        "time": [datetime.datetime(2020, 1, 2, 3, 4, 5), None],
        "list": [[1, 2], None],
        "struct": [{"a": "b", "c": None}, None],
        "bytes": [b"\x00\xff", None],
        "null": pa.nulls(2),
        'odd"name': [1, 2],
    }
    outcome = read_path(store(tmp_path / "a.parquet", columns))
    first, second = (json.loads(row["meta"]) for row in outcome.rows)
    assert first == {
        "string": 'q"\\\n\x01é', "int": 2**63 - 1, "float": 1.0, "bool": True, "decimal": 1.1,
        "time": "2020-01-02 03:04:05.000000", "list": [1, 2], "struct": {"a": "b", "c": None}, "bytes": "AP8=",
        "null": None, 'odd"name': 1,
    }  # fmt: skip
    assert isinstance(first["float"], float) and second["float"] == "nan" and second["string"] is None


def test_nested_text_and_origin(tmp_path: Path) -> None:
    docs = [{"text": "one", "k": 1}, None, {"text": None, "k": 2}, {"text": "two", "k": 3}]
    path = store(tmp_path / "a.parquet", {"doc": docs, "url": ["u1", "u2", "u3", None]})
    outcome = read_path(path, text_field="doc.text", origin_field="url")
    assert outcome.texts == ["one", "two"] and outcome.aside == [(1, "null_text"), (2, "null_text")]
    assert [(row["origin"], row["meta"]) for row in outcome.rows] == [
        ("u1", '{"doc":{"k":1}}'),
        ("a.parquet#3", '{"doc":{"k":3}}'),
    ]
    missing = read_path(path)
    assert missing.file_reasons == ["no_text_column"] and "doc, url" in missing.entries[0]["detail"]


@pytest.mark.parametrize("column", [[1, 2], [["a"], ["b"]], [1.5, 2.5]], ids=["int", "list", "float"])
def test_column_that_holds_no_text(tmp_path: Path, column: list[Any]) -> None:
    outcome = read_path(store(tmp_path / "a.parquet", {"text": column}))
    assert outcome.file_reasons == ["text_column_not_string"] and not outcome.rows


def test_two_columns_of_the_name(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "a.parquet")
    outcome = read_path(tmp_path / "a.parquet")
    assert outcome.file_reasons == ["no_text_column"] and "twice" in outcome.entries[0]["detail"]


def test_damaged_row_group_costs_only_itself(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [rng.bytes(200).hex() for _ in range(20)]
    path = store(tmp_path / "a.parquet", {"text": texts}, rows=5)
    column = pq.read_metadata(path).row_group(2).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(bytes(data))
    outcome = read_path(path)
    assert outcome.texts == texts[:10] + texts[15:]
    assert outcome.file_reasons == ["corrupt_row_group"] and "rows 10 to 14" in outcome.entries[0]["detail"]


def test_cuts_change_nothing(tmp_path: Path) -> None:
    path = store(tmp_path / "a.parquet", {"text": [f"text {k}" * (k % 7 + 1) for k in range(100)]}, rows=9)
    whole = read_path(path)
    for target in (1, 300, 1000):
        for options in (ReadOptions(batch_bytes=50), ReadOptions(batch_rows=3), ReadOptions()):
            assert read_path(path, target=target, options=options).rows == whole.rows
    limited = read_path(path, options=ReadOptions(max_document_bytes=30))
    assert {reason for _, reason in limited.aside} == {"record_too_large"} and len(limited.rows) + len(
        limited.aside
    ) == 100
