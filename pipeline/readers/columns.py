"""Arrow columns of any type as text to check and as JSON to keep."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from pipeline.readers.bytes_kernel import INVALID_UTF8, text_codes

LARGE = pa.large_string()
SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pt.is_dictionary(kind) else kind


def _is_string(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind)


def is_textual(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold text: any string or variable binary type, a dictionary of one, null."""
    kind = _value_type(kind)
    return pt.is_null(kind) or _is_string(kind) or _is_binary(kind)


def _plain(column: pa.Array) -> pa.Array:
    """Without dictionary or extension wrapping."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.cast(column.type.value_type) if pt.is_dictionary(column.type) else column


def large_binary(column: pa.Array) -> pa.LargeBinaryArray:
    """A textual column (see `is_textual`) as large_binary; string values are shared, not copied."""
    return _plain(column).cast(pa.large_binary())


def classify(text: pa.LargeBinaryArray, limit: int) -> npt.NDArray[np.int8]:
    """int8[rows]: OK, or what keeps each row from being a document (codes of bytes_kernel)."""
    codes = np.zeros(len(text), np.int8)
    if len(text):
        _, offset_buffer, value_buffer = text.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64)[text.offset : text.offset + len(text) + 1]
        data = np.frombuffer(value_buffer, np.uint8) if value_buffer is not None else np.zeros(0, np.uint8)
        if data.ctypes.data % 8:
            data = data.copy()
        words = data[: len(data) // 8 * 8].view(np.uint64)
        valid = np.asarray(text.is_valid())
        text_codes(data, words, offsets, valid, limit, codes)
    return codes


def invalid_rows(column: pa.Array) -> npt.NDArray[np.bool_]:
    """bool[rows]: where a declared string, however deep, is not UTF-8."""
    kind = column.type.storage_type if isinstance(column, pa.ExtensionArray) else column.type
    bad = np.zeros(len(column), np.bool_)
    if _is_string(_value_type(kind)):
        return classify(large_binary(column), 1 << 62) == INVALID_UTF8
    if pt.is_nested(kind):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            for k in range(len(column)):
                try:
                    column[k].as_py()
                except UnicodeDecodeError:
                    bad[k] = True
    return bad


def json_objects(columns: Sequence[tuple[str, pa.Array]], rows: int) -> pa.LargeStringArray:
    """One JSON object a row from named columns, in their order, as large_string. Strings must be valid UTF-8."""
    if not columns:
        return pa.repeat(pa.scalar("{}", LARGE), rows)
    parts: list[Any] = []
    opening = "{"
    for name, column in columns:
        parts += [pa.scalar(opening + json.dumps(name, ensure_ascii=False) + ":", LARGE), json_values(column)]
        opening = ","
    return pc.binary_join_element_wise(*parts, pa.scalar("}", LARGE), pa.scalar("", LARGE))


def json_values(column: pa.Array) -> pa.LargeStringArray:
    """A column as JSON texts (large_string without nulls).

    Numbers and booleans as they are; strings escaped; dates and times as ISO-like strings; NaN and infinities as
    strings, for JSON has no such numbers; binary as base64; nested types through Python.
    """
    column = _plain(column)
    kind = column.type
    if pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_decimal(kind):
        texts = column.cast(LARGE)
    elif pt.is_floating(kind):
        texts = _floats(column)
    elif _is_string(kind):
        texts = _quoted(_escaped(column.cast(LARGE)))
    elif pt.is_timestamp(kind) or pt.is_date(kind) or pt.is_time(kind):
        texts = _quoted(column.cast(pa.string()).cast(LARGE))
    else:
        texts = pa.array([_dumps(value.as_py()) for value in column], LARGE)
    return pc.fill_null(texts, "null")


def _quoted(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    quote = pa.scalar('"', LARGE)
    return pc.binary_join_element_wise(quote, texts, quote, pa.scalar("", LARGE))


def _escaped(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    texts = pc.replace_substring(texts, "\\", "\\\\")
    texts = pc.replace_substring(texts, '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        for code in range(0x20):
            character = chr(code)
            texts = pc.replace_substring(texts, character, SHORT_ESCAPES.get(character, f"\\u{code:04x}"))
    return texts


def _floats(column: pa.Array) -> pa.LargeStringArray:
    """Shortest decimal that reads back to the same number, with a point or exponent so that it stays a float."""
    if pt.is_float16(column.type):
        column = column.cast(pa.float32())
    texts = column.cast(pa.string()).cast(LARGE)
    whole = pc.match_substring_regex(texts, r"^-?\d+$")
    pointed = pc.binary_join_element_wise(texts, pa.scalar(".0", LARGE), pa.scalar("", LARGE))
    texts = pc.if_else(whole, pointed, texts)
    return pc.if_else(pc.is_finite(column), texts, _quoted(texts))


def _dumps(value: Any) -> str:
    return json.dumps(_jsonable(value), ensure_ascii=False, separators=(",", ":"))


def _jsonable(value: Any) -> Any:
    """A Python value from Arrow as what json.dumps can write."""
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)
