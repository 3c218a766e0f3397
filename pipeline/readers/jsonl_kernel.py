"""The JSONL scanner: strict RFC 8259, one pass, straight from a block of lines into Arrow value and offset buffers.

No Python object per line. A line is validated as a whole; of an object the text member is unescaped into the text
buffer, and the other members are copied as they stand into the meta buffer.
"""

from __future__ import annotations

import numpy as np

from pipeline.readers.bytes_kernel import (
    EMPTY_TEXT,
    HAS_ESCAPE,
    HAS_LONE_SURROGATE,
    HAS_NUL_ESCAPE,
    I8,
    I64,
    INVALID_JSON,
    LONE_SURROGATE,
    MISSING_TEXT,
    NOT_AN_OBJECT,
    NUL_BYTE,
    NULL_TEXT,
    OK,
    QUOTE,
    TEXT_NOT_STRING,
    TOO_DEEP,
    TOO_LARGE,
    U8,
    U64,
    copy_bytes,
    is_blank,
    scan_string,
    unescape,
)
from pipeline.text.jit import kernel

NEWLINE = 0x0A
COMMA = 0x2C
COLON = 0x3A
OPEN_BRACE = 0x7B
CLOSE_BRACE = 0x7D
OPEN_BRACKET = 0x5B
CLOSE_BRACKET = 0x5D

BLANK = -1  # the line holds no record


@kernel
def skip_blanks(data: U8, i: int, stop: int) -> int:
    """First index from `i` that is no JSON white space within the line (space, tab, CR)."""
    while i < stop and (data[i] == 0x20 or data[i] == 0x09 or data[i] == 0x0D):
        i += 1
    return i


@kernel
def find_newline(data: U8, i: int, stop: int) -> int:
    """Index of the first newline from `i`, or `stop`."""
    while i < stop and data[i] != NEWLINE:
        i += 1
    return i


@kernel
def _unexpected(data: U8, i: int, stop: int) -> int:
    """The code for a byte that the grammar does not allow at `i`."""
    return NUL_BYTE if i < stop and data[i] == 0 else INVALID_JSON


@kernel
def _digits(data: U8, i: int, stop: int) -> int:
    while i < stop and 0x30 <= data[i] <= 0x39:
        i += 1
    return i


@kernel
def _number(data: U8, i: int, stop: int) -> int:
    """End of the JSON number at `i`, or -1."""
    if i < stop and data[i] == 0x2D:
        i += 1
    start = i
    i = _digits(data, i, stop)
    if i == start or (data[start] == 0x30 and i > start + 1):
        return -1
    if i < stop and data[i] == 0x2E:
        start = i + 1
        i = _digits(data, start, stop)
        if i == start:
            return -1
    if i < stop and (data[i] == 0x65 or data[i] == 0x45):
        i += 1
        if i < stop and (data[i] == 0x2B or data[i] == 0x2D):
            i += 1
        start = i
        i = _digits(data, start, stop)
        if i == start:
            return -1
    return i


@kernel
def _literal(data: U8, i: int, stop: int) -> int:
    """End of true, false or null at `i`, or -1."""
    c = data[i]
    if c == 0x74:
        good = i + 4 <= stop and data[i + 1] == 0x72 and data[i + 2] == 0x75 and data[i + 3] == 0x65
        return i + 4 if good else -1
    if c == 0x6E:
        good = i + 4 <= stop and data[i + 1] == 0x75 and data[i + 2] == 0x6C and data[i + 3] == 0x6C
        return i + 4 if good else -1
    good = i + 5 <= stop and data[i + 1] == 0x61 and data[i + 2] == 0x6C and data[i + 3] == 0x73
    return i + 5 if c == 0x66 and good and data[i + 4] == 0x65 else -1


@kernel
def _key(data: U8, words: U64, i: int, stop: int) -> tuple[int, int, int]:
    """A member's key and colon, blanks around them included: (start of the value, flags, code)."""
    i = skip_blanks(data, i, stop)
    if i >= stop or data[i] != QUOTE:
        return i, 0, _unexpected(data, i, stop)
    i, flags, code = scan_string(data, words, i + 1, stop)
    if code != OK:
        return i, flags, code
    i = skip_blanks(data, i, stop)
    if i >= stop or data[i] != COLON:
        return i, flags, _unexpected(data, i, stop)
    return i + 1, flags, OK


@kernel
def _value(data: U8, words: U64, i: int, stop: int, stack: U8, base: int) -> tuple[int, int, int]:
    """Validate one JSON value from `i` (no leading blanks): (end, string flags, code), at the offending byte if bad.

    `stack` uint8[limit] holds a 1 for each open object and a 0 for each open array; `base` levels are already open.
    """
    depth = base
    seen = 0
    while True:
        if i >= stop:
            return i, seen, INVALID_JSON
        c = data[i]
        opened = False
        if c == QUOTE:
            i, flags, code = scan_string(data, words, i + 1, stop)
            seen |= flags
            if code != OK:
                return i, seen, code
        elif c in (OPEN_BRACE, OPEN_BRACKET):
            if depth >= len(stack):
                return i, seen, TOO_DEEP
            stack[depth] = c == OPEN_BRACE
            depth += 1
            i = skip_blanks(data, i + 1, stop)
            opened = not (i < stop and data[i] == c + 2)  # the closing bracket is two code points on, in both cases
            if opened and c == OPEN_BRACE:
                i, flags, code = _key(data, words, i, stop)
                seen |= flags
                if code != OK:
                    return i, seen, code
                i = skip_blanks(data, i, stop)
        else:
            end = _number(data, i, stop) if c == 0x2D or 0x30 <= c <= 0x39 else _literal(data, i, stop)
            if end < 0:
                return i, seen, _unexpected(data, i, stop)
            i = end
        if opened:
            continue
        # A value ends here; close what closes, up to the comma before the next one.
        while True:
            if depth == base:
                return i, seen, OK
            i = skip_blanks(data, i, stop)
            if i >= stop:
                return i, seen, INVALID_JSON
            c = data[i]
            in_object = stack[depth - 1] == 1
            if c == COMMA:
                i += 1
                if in_object:
                    i, flags, code = _key(data, words, i, stop)
                    seen |= flags
                    if code != OK:
                        return i, seen, code
                i = skip_blanks(data, i, stop)
                break
            if c != (CLOSE_BRACE if in_object else CLOSE_BRACKET):
                return i, seen, _unexpected(data, i, stop)
            depth -= 1
            i += 1


@kernel
def _same_key(data: U8, start: int, end: int, flags: int, name: U8, scratch: U8) -> bool:
    """Whether the key body data[start:end] spells `name` (UTF-8). `scratch` is uint8[6 * len(name)]."""
    if flags & HAS_ESCAPE:
        if end - start > len(scratch):  # no escape is longer than six bytes for each byte it stands for
            return False
        size = unescape(data, start, end, scratch, 0)
        data, start, end = scratch, 0, size
    if end - start != len(name):
        return False
    same = True
    for k in range(len(name)):
        same &= data[start + k] == name[k]
    return same


@kernel
def _body_end(data: U8, i: int) -> int:
    """Index of the closing quote of the key before the value at `i`: steps back over blanks and the colon."""
    while data[i] != QUOTE:
        i -= 1
    return i


@kernel
def _decode(data: U8, start: int, end: int, flags: int, out: U8, o: int) -> int:
    """Write a string body to out[o:]; returns the next free place."""
    if flags & HAS_ESCAPE:
        return unescape(data, start, end, out, o)
    return copy_bytes(data, start, end, out, o)


@kernel
def _line(
    data: U8, words: U64, i: int, stop: int, names: tuple[U8, U8], scratch: tuple[U8, U8], stack: U8,
    outs: tuple[U8, U8, U8], at: I64,
) -> tuple[int, int]:  # fmt: skip
    """Scan the line at `i`. Returns (where the scan stopped, code).

    On OK, at[0], at[1], at[2] (int64: places in the text, meta and origin buffers `outs`) have moved to the ends of
    this line's values; otherwise they are as before.
    """
    text, meta, origin = outs
    i = skip_blanks(data, i, stop)
    if i >= stop or data[i] == NEWLINE:
        return i, BLANK
    if data[i] != OPEN_BRACE:
        i, seen, code = _value(data, words, i, stop, stack, 0)
        return _close(data, i, stop, NOT_AN_OBJECT if code == OK else code, code == OK)
    t, o = at[0], at[2]
    m = at[1]
    meta[m] = OPEN_BRACE
    m += 1
    kind = MISSING_TEXT
    seen = 0
    i = skip_blanks(data, i + 1, stop)
    if i < stop and data[i] == CLOSE_BRACE:
        return _close(data, i + 1, stop, MISSING_TEXT, True)
    while True:
        i = skip_blanks(data, i, stop)
        key = i
        i, key_flags, code = _key(data, words, i, stop)
        if code != OK:
            return i, code
        is_text = False
        is_origin = False
        key_end = _body_end(data, i - 1)
        if len(names[0]) == key_end - key - 1 or key_flags & HAS_ESCAPE:
            is_text = _same_key(data, key + 1, key_end, key_flags, names[0], scratch[0])
        if len(names[1]) > 0 and not is_text:
            is_origin = _same_key(data, key + 1, key_end, key_flags, names[1], scratch[1])
        i = skip_blanks(data, i, stop)
        value = i
        i, flags, code = _value(data, words, i, stop, stack, 1)
        if code != OK:
            return i, code
        seen |= (key_flags | flags) & HAS_LONE_SURROGATE
        is_string = data[value] == QUOTE
        if is_text:
            if is_string:
                t = at[0]
                kind = OK
                if flags & HAS_NUL_ESCAPE:
                    kind = NUL_BYTE
                if not flags & HAS_LONE_SURROGATE:
                    t = _decode(data, value + 1, i - 1, flags, text, at[0])
            else:
                kind = NULL_TEXT if data[value] == 0x6E else TEXT_NOT_STRING
        elif is_origin and is_string and i - value > 2:
            if not flags & HAS_LONE_SURROGATE:
                o = _decode(data, value + 1, i - 1, flags, origin, at[2])
        else:
            if m > at[1] + 1:
                meta[m] = COMMA
                m += 1
            m = copy_bytes(data, key, i, meta, m)
        i = skip_blanks(data, i, stop)
        if i < stop and data[i] == COMMA:
            i += 1
            continue
        if i < stop and data[i] == CLOSE_BRACE:
            i += 1
            break
        return i, _unexpected(data, i, stop)
    if seen:
        kind = LONE_SURROGATE
    elif kind == OK and is_blank(text, at[0], t):
        kind = EMPTY_TEXT
    i, code = _close(data, i, stop, kind, True)
    if code == OK:
        meta[m] = CLOSE_BRACE
        at[0], at[1], at[2] = t, m + 1, o
    return i, code


@kernel
def _close(data: U8, i: int, stop: int, code: int, whole: bool) -> tuple[int, int]:
    """(i, code) if nothing but blanks follows a whole value on its line; else a syntax error takes precedence."""
    if not whole:
        return i, code
    i = skip_blanks(data, i, stop)
    if i < stop and data[i] != NEWLINE:
        return i, _unexpected(data, i, stop)
    return i, code


@kernel
def scan_lines(
    data: U8, words: U64, start: int, stop: int, names: tuple[U8, U8], scratch: tuple[U8, U8], stack: U8,
    outs: tuple[U8, U8, U8], offsets: tuple[I64, I64, I64], good: I64, bad: I64, codes: I8, limit: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Scan whole lines from data[start:stop] until they or the row arrays are used up.

    `names`: the text member's and the origin member's key, UTF-8 (the latter empty for none); `scratch`: uint8 arrays
    of six times their length. `outs`: text, meta and origin values, each uint8[>= stop - start + 2]. `offsets`: int64
    [rows + 1] each. good[k]: where delivered line k begins. bad[k] = (begin, end, offending byte) and codes[k] for
    the lines set aside, among them those of more than `limit` bytes. Returns (index after the last line scanned,
    delivered, set aside).
    """
    rows = len(good)
    n = 0
    b = 0
    at = np.zeros(3, np.int64)
    for c in range(3):
        offsets[c][0] = 0
    i = start
    while i < stop and n + b < rows:
        begin = i
        i, code = _line(data, words, i, stop, names, scratch, stack, outs, at)
        if code == OK and i - begin > limit:
            code = TOO_LARGE
            for c in range(3):
                at[c] = offsets[c][n]
        if code == OK:
            good[n] = begin
            n += 1
            offsets[0][n], offsets[1][n], offsets[2][n] = at[0], at[1], at[2]
        elif code != BLANK:
            offending = i
            i = find_newline(data, i, stop)
            bad[b, 0], bad[b, 1], bad[b, 2] = begin, i, offending
            codes[b] = TOO_LARGE if i - begin > limit else code
            b += 1
        i += 1
    return min(i, stop), n, b
