"""Kernels over UTF-8 bytes: strict validation, JSON strings, blanks. The JSONL scanner and Parquet share them.

`data` is uint8[n]; `words` is the same memory as uint64[n // 8], which lets a loop pass over eight plain bytes at
once. Indices are int64.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.text.jit import kernel

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
I8 = npt.NDArray[np.int8]

# What can be wrong, as small integers for kernels; REASONS gives their names in QUARANTINE_REASONS.
OK = 0
INVALID_JSON = 1
NOT_AN_OBJECT = 2
MISSING_TEXT = 3
NULL_TEXT = 4
EMPTY_TEXT = 5
TEXT_NOT_STRING = 6
INVALID_UTF8 = 7
LONE_SURROGATE = 8
NUL_BYTE = 9
TOO_DEEP = 10
TOO_LARGE = 11
REASONS = (
    "",
    "invalid_json",
    "not_an_object",
    "missing_text",
    "null_text",
    "empty_text",
    "text_not_string",
    "invalid_utf8",
    "lone_surrogate",
    "nul_byte",
    "too_deep",
    "record_too_large",
)

# Flags of a JSON string.
HAS_ESCAPE = 1
HAS_LONE_SURROGATE = 2
HAS_NUL_ESCAPE = 4

ONES = np.uint64(0x0101010101010101)
HIGHS = np.uint64(0x8080808080808080)
SPACES = np.uint64(0x2020202020202020)
QUOTES = np.uint64(0x2222222222222222)
BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)

QUOTE = 0x22
BACKSLASH = 0x5C


@kernel
def utf8_length(data: U8, i: int, stop: int) -> int:
    """Length (2 to 4) of the well-formed multi-byte sequence at `i`, or 0. Unicode 15, table 3-7."""
    c = data[i]
    if c < 0xC2 or c > 0xF4 or i + 1 >= stop:
        return 0
    d = data[i + 1]
    if c < 0xE0:
        return 2 if d & 0xC0 == 0x80 else 0
    low, high = 0x80, 0xBF
    if c == 0xE0:
        low = 0xA0
    elif c == 0xED:
        high = 0x9F  # surrogates
    elif c == 0xF0:
        low = 0x90
    elif c == 0xF4:
        high = 0x8F  # above U+10FFFF
    if d < low or d > high or i + 2 >= stop or data[i + 2] & 0xC0 != 0x80:
        return 0
    if c < 0xF0:
        return 3
    return 4 if i + 3 < stop and data[i + 3] & 0xC0 == 0x80 else 0


@kernel
def skip_three_byte(data: U8, i: int, stop: int) -> int:
    """Index after the run at `i` of three-byte sequences that need no look at their second byte's range (most CJK)."""
    while i + 2 < stop:
        c = np.uint32(data[i]) | np.uint32(data[i + 1]) << np.uint32(8) | np.uint32(data[i + 2]) << np.uint32(16)
        lead = c & np.uint32(0xFF)
        # 0xE1 to 0xEF without 0xED (surrogates), then two continuation bytes.
        if c & np.uint32(0xC0C0F0) != np.uint32(0x8080E0) or lead == np.uint32(0xE0) or lead == np.uint32(0xED):
            break
        i += 3
    return i


@kernel
def _hex4(data: U8, i: int, stop: int) -> int:
    """Value of the four hexadecimal digits at `i`, or -1."""
    if i + 4 > stop:
        return -1
    value = 0
    for k in range(i, i + 4):
        c = int(data[k])
        if 0x30 <= c <= 0x39:
            digit = c - 0x30
        elif 0x41 <= (c & 0xDF) <= 0x46:
            digit = (c & 0xDF) - 0x37
        else:
            return -1
        value = value * 16 + digit
    return value


@kernel
def _escape_length(data: U8, i: int, stop: int) -> tuple[int, int]:
    """(length, flags) of the escape whose backslash is at `i`; length 0 if it is no JSON escape."""
    if i + 1 >= stop:
        return 0, 0
    c = data[i + 1]
    if c != 0x75:
        # " \ / b f n r t
        return (2 if c in (QUOTE, BACKSLASH, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74) else 0), 0
    code = _hex4(data, i + 2, stop)
    if code < 0:
        return 0, 0
    if code == 0:
        return 6, HAS_NUL_ESCAPE
    if code < 0xD800 or code > 0xDFFF:
        return 6, 0
    if code < 0xDC00 and i + 7 < stop and data[i + 6] == BACKSLASH and data[i + 7] == 0x75:
        low = _hex4(data, i + 8, stop)
        if 0xDC00 <= low <= 0xDFFF:
            return 12, 0
    return 6, HAS_LONE_SURROGATE


@kernel
def scan_string(data: U8, words: U64, i: int, stop: int) -> tuple[int, int, int]:
    """Validate the JSON string whose first byte after the opening quote is at `i`.

    Returns (end, flags, code): `end` is past the closing quote and code OK, or `end` is the offending byte and code
    says what is wrong with it.
    """
    flags = 0
    while i < stop:
        if i & 7 == 0:
            while i + 8 <= stop:
                w = words[i >> 3]
                q = w ^ QUOTES
                b = w ^ BACKSLASHES
                # A high bit set anywhere: a control character, a quote, a backslash or a non-ASCII byte is in there.
                if ((w - SPACES) | (q - ONES) | (b - ONES) | w) & HIGHS != 0:
                    break
                i += 8
            if i >= stop:
                break
        c = data[i]
        if c >= 0x80:
            end = skip_three_byte(data, i, stop)
            if end == i:
                length = utf8_length(data, i, stop)
                if length == 0:
                    return i, flags, INVALID_UTF8
                end = i + length
            i = end
        elif c == QUOTE:
            return i + 1, flags, OK
        elif c == BACKSLASH:
            length, extra = _escape_length(data, i, stop)
            if length == 0:
                return i, flags, INVALID_JSON
            flags |= HAS_ESCAPE | extra
            i += length
        elif c < 0x20:
            return i, flags, NUL_BYTE if c == 0 else INVALID_JSON
        else:
            i += 1
    return stop, flags, INVALID_JSON


@kernel
def _put_code_point(code: int, out: U8, o: int) -> int:
    """Write a code point as UTF-8 at `o`; returns the next free place."""
    if code < 0x80:
        out[o] = code
        return o + 1
    if code < 0x800:
        out[o] = 0xC0 | (code >> 6)
        out[o + 1] = 0x80 | (code & 0x3F)
        return o + 2
    if code < 0x10000:
        out[o] = 0xE0 | (code >> 12)
        out[o + 1] = 0x80 | ((code >> 6) & 0x3F)
        out[o + 2] = 0x80 | (code & 0x3F)
        return o + 3
    out[o] = 0xF0 | (code >> 18)
    out[o + 1] = 0x80 | ((code >> 12) & 0x3F)
    out[o + 2] = 0x80 | ((code >> 6) & 0x3F)
    out[o + 3] = 0x80 | (code & 0x3F)
    return o + 4


@kernel
def copy_bytes(data: U8, start: int, end: int, out: U8, o: int) -> int:
    """Copy data[start:end] to out[o:]; returns the next free place."""
    for k in range(end - start):
        out[o + k] = data[start + k]
    return o + end - start


@kernel
def unescape(data: U8, start: int, end: int, out: U8, o: int) -> int:
    """Decode the escapes of a validated JSON string body to out[o:]; never longer than the body.

    A lone surrogate comes out as three bytes that are not UTF-8; callers refuse such strings by their flag.
    """
    i = start
    while i < end:
        c = data[i]
        if c != BACKSLASH:
            out[o] = c
            o += 1
            i += 1
            continue
        c = data[i + 1]
        if c != 0x75:
            if c == 0x6E:
                c = np.uint8(0x0A)
            elif c == 0x74:
                c = np.uint8(0x09)
            elif c == 0x72:
                c = np.uint8(0x0D)
            elif c == 0x62:
                c = np.uint8(0x08)
            elif c == 0x66:
                c = np.uint8(0x0C)
            out[o] = c
            o += 1
            i += 2
            continue
        code = _hex4(data, i + 2, end)
        i += 6
        if 0xD800 <= code < 0xDC00 and i + 6 <= end and data[i] == BACKSLASH and data[i + 1] == 0x75:
            low = _hex4(data, i + 2, end)
            if 0xDC00 <= low <= 0xDFFF:
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                i += 6
        o = _put_code_point(code, out, o)
    return o


@kernel
def is_blank(data: U8, start: int, end: int) -> bool:
    """Whether valid UTF-8 holds nothing but code points of the Unicode property White_Space (PropList 15)."""
    i = start
    while i < end:
        c = data[i]
        if c == 0x20 or 0x09 <= c <= 0x0D:
            i += 1
        elif c == 0xC2 and (data[i + 1] == 0x85 or data[i + 1] == 0xA0):
            i += 2
        elif c == 0xE1 and data[i + 1] == 0x9A and data[i + 2] == 0x80:  # U+1680
            i += 3
        elif c == 0xE2 and data[i + 1] == 0x80:
            d = data[i + 2]  # U+2000-200A, 2028, 2029, 202F
            if not (d <= 0x8A or d == 0xA8 or d == 0xA9 or d == 0xAF):
                return False
            i += 3
        elif (c == 0xE2 and data[i + 1] == 0x81 and data[i + 2] == 0x9F) or (
            c == 0xE3 and data[i + 1] == 0x80 and data[i + 2] == 0x80
        ):  # U+205F, U+3000
            i += 3
        else:
            return False
    return True


@kernel
def text_code(data: U8, words: U64, start: int, end: int) -> int:
    """OK, or why these bytes are no document: INVALID_UTF8, NUL_BYTE, EMPTY_TEXT (in this order of precedence)."""
    has_nul = False
    i = start
    while i < end:
        if i & 7 == 0:
            while i + 8 <= end:
                w = words[i >> 3]
                if ((w - ONES) | w) & HIGHS != 0:
                    break
                i += 8
            if i >= end:
                break
        c = data[i]
        if c >= 0x80:
            after = skip_three_byte(data, i, end)
            if after == i:
                length = utf8_length(data, i, end)
                if length == 0:
                    return INVALID_UTF8
                after = i + length
            i = after
        else:
            has_nul |= c == 0
            i += 1
    if has_nul:
        return NUL_BYTE
    return EMPTY_TEXT if is_blank(data, start, end) else OK


@kernel
def text_codes(data: U8, words: U64, offsets: I64, valid: npt.NDArray[np.bool_], limit: int, codes: I8) -> int:
    """codes[k] = what is wrong with row k of a text column, or OK; returns how many rows are not OK.

    `offsets` int64[rows + 1] into `data`, `valid` bool[rows], `limit` the largest size in bytes, `codes` int8[rows].
    """
    bad = 0
    for k in range(len(codes)):
        if not valid[k]:
            codes[k] = NULL_TEXT
        elif offsets[k + 1] - offsets[k] > limit:
            codes[k] = TOO_LARGE
        else:
            codes[k] = text_code(data, words, offsets[k], offsets[k + 1])
        bad += codes[k] != OK
    return bad
