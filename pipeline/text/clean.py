"""Normalisation in one pass over the bytes: line ends, control characters, trailing blanks; and who needs NFC."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.text.buffers import Text
from pipeline.text.classes import SPACE, tables
from pipeline.text.jit import kernel
from pipeline.text.utf8 import decode


@kernel
def _clean(data, offsets, word_class, nfc, line_ends, controls, trailing, out, out_offsets, needs_nfc):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    w = 0
    out_offsets[0] = 0
    for doc in range(len(offsets) - 1):
        i, end = offsets[doc], offsets[doc + 1]
        first = w
        solid = w  # just after the last character of this line that is no blank
        text_end = w  # just after the last character of this document that is no blank
        flagged = False
        while i < end:
            byte = data[i]
            if byte < 0x80:
                i += 1
                if byte >= 0x20 and byte != 0x7F:
                    out[w] = byte
                    w += 1
                    if byte != 0x20:
                        solid = w
                        text_end = w
                    continue
                size = 0
                if line_ends and byte == 0x0D:
                    if i < end and data[i] == 0x0A:
                        i += 1
                    byte = np.uint8(0x0A)
                elif controls and (byte == 0x0B or byte == 0x0C):
                    byte = np.uint8(0x0A)
                elif controls and byte != 0x09 and byte != 0x0A and byte != 0x0D:
                    continue
                if byte == 0x0A and trailing:
                    w = solid
                    if text_end == first:  # only blank lines so far: the document starts later
                        w = first
                        solid = w
                        text_end = w
                        continue
                out[w] = byte
                w += 1
                if byte == 0x0A:
                    solid = w
                elif not (byte == 0x09 or 0x0B <= byte <= 0x0D):
                    solid = w
                    text_end = w
                continue
            point, size = decode(data, i)
            if controls:
                if point == 0x85:
                    if trailing:
                        w = solid
                        if text_end == first:
                            w = first
                            solid = w
                            text_end = w
                            i += size
                            continue
                    out[w] = 0x0A
                    w += 1
                    solid = w
                    i += size
                    continue
                if 0x80 <= point < 0xA0 or point == 0xFEFF:
                    i += size
                    continue
            flagged = flagged or nfc[point] != 0
            for k in range(size):
                out[w + k] = data[i + k]
            w += size
            i += size
            if word_class[point] != SPACE:
                solid = w
                text_end = w
        if trailing:
            w = text_end
        needs_nfc[doc] = flagged
        out_offsets[doc + 1] = w
    return w


def clean_text(
    text: Text, *, line_ends: bool, control_characters: bool, trailing_blanks: bool
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """(bytes, offsets, needs_nfc): the cleaned text and which documents NFC may still change.

    `trailing_blanks` removes White_Space before a line feed and blank lines at both ends of a document;
    `control_characters` removes C0, DEL, C1 and U+FEFF, except tab and line feed, and turns VT, FF and NEL into line
    feeds, since they separate words. Carriage returns are `line_ends`' business.
    """
    n = len(text.offsets) - 1
    out = np.empty(int(text.offsets[-1] - text.offsets[0]), dtype=np.uint8)
    offsets = np.empty(n + 1, dtype=np.int64)
    needs_nfc = np.empty(n, dtype=np.bool_)
    lookup = tables()
    total = _clean(
        text.data, text.offsets, lookup.word, lookup.nfc, line_ends, control_characters, trailing_blanks,
        out, offsets, needs_nfc,
    )  # fmt: skip
    return out[:total], offsets, needs_nfc
