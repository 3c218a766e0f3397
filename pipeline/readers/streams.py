"""Bytes of an input file in bounded chunks, decompressed, with every defect of the container named.

gzip goes through zlib member by member; zstd is fed block by block, so that no chunk exceeds 128 KiB however well
the data compresses, and a stream that ends early is told from one that ends.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

import pyarrow.fs as pafs
import zstandard

from pipeline.readers.contract import FileProblem, InputFile

READ_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# First bytes of files that are not text, whatever their name says.
BINARY_MAGICS = {
    GZIP_MAGIC: "gzip",
    ZSTD_MAGIC: "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow IPC",
    b"\x7fELF": "ELF",
    b"%PDF-": "PDF",
    b"\x89PNG": "PNG",
}
# UTF-32LE begins like UTF-16LE; a JSON line in UTF-16 without a BOM has a NUL as its first or second byte.
WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
WIDE_JSON = (b"{\x00", b"\x00{", b"[\x00", b"\x00[")
UTF8_BOM = b"\xef\xbb\xbf"


class ByteFile(Protocol):
    """What is needed of an open file."""

    def read(self, size: int = -1) -> bytes: ...


@lru_cache(maxsize=64)
def filesystem(uri: str) -> pafs.FileSystem:
    """The file system of a URI ("" is the local one); kept, because opening a remote one takes round trips."""
    return pafs.LocalFileSystem() if not uri else pafs.FileSystem.from_uri(uri)[0]


def open_random(file: InputFile) -> pafs.NativeFile:
    """Open a file for random access. Raises OSError."""
    return filesystem(file.filesystem).open_input_file(file.path)


def head_of(file: InputFile, size: int = 512) -> bytes:
    """The first bytes of a file as stored. Raises OSError."""
    with open_random(file) as stream:
        return bytes(stream.read(size))


def check_plain(head: bytes) -> None:
    """Refuse the head of an uncompressed file that is no UTF-8 text: FileProblem unexpected_binary, invalid_utf8."""
    kind = binary_kind(head)
    if kind:
        raise FileProblem("unexpected_binary", f"the name says text, the bytes are {kind}", head)
    check_wide(head)


def binary_kind(head: bytes) -> str | None:
    """The name of the binary format that a file's first bytes belong to. A text may begin with BZh or PK as well, so
    a byte that is no ASCII text must be among them."""
    if head.isascii() and b"\0" not in head:
        return None
    return next((kind for magic, kind in BINARY_MAGICS.items() if head.startswith(magic)), None)


def check_wide(head: bytes) -> None:
    """Refuse UTF-16 and UTF-32 (FileProblem invalid_utf8)."""
    if head.startswith(WIDE_BOMS) or head.startswith(WIDE_JSON):
        raise FileProblem("invalid_utf8", "the file is UTF-16 or UTF-32; convert it to UTF-8", head)


def chunks(file: InputFile) -> Iterator[bytes]:
    """Decompressed chunks of a whole file, each at most about 1 MiB. Raises FileProblem, OSError."""
    with open_random(file) as stream:
        if file.compression is None:
            yield from iter(lambda: bytes(stream.read(READ_BYTES)), b"")
            return
        reader = _Reader(stream)
        head = reader.peek(16)
        if not head:
            raise FileProblem("empty_file", "the file has no bytes")
        yield from (_gzip(reader) if file.compression == "gzip" else _zstd(reader))


def read_whole(file: InputFile, limit: int) -> bytes:
    """A file's decompressed bytes. Raises FileProblem: record_too_large above `limit`, empty_file, and as `chunks`."""
    if file.compression is None and file.size > limit:
        raise FileProblem("record_too_large", f"{file.size} bytes; max_document_bytes is {limit}", head_of(file))
    parts: list[bytes] = []
    size = 0
    for chunk in chunks(file):
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            raise FileProblem("record_too_large", f"more than max_document_bytes = {limit} bytes", parts[0])
    if not size:
        raise FileProblem("empty_file", "the file has no bytes")
    return b"".join(parts)


class _Reader:
    """Exact reads over a stream, with a look ahead. Keeps at most one chunk and a block."""

    def __init__(self, stream: ByteFile) -> None:
        self._stream = stream
        self._buffer = b""
        self._at = 0
        self.position = 0  # of the next byte in the file

    def _fill(self, size: int) -> None:
        while len(self._buffer) - self._at < size:
            more = bytes(self._stream.read(READ_BYTES))
            if not more:
                return
            self._buffer = self._buffer[self._at :] + more
            self._at = 0

    def peek(self, size: int) -> bytes:
        """Up to `size` bytes, not consumed."""
        self._fill(size)
        return self._buffer[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        data = self.peek(size)
        self._at += len(data)
        self.position += len(data)
        return data

    def untake(self, data: bytes) -> None:
        """Put back the last bytes taken."""
        self._at -= len(data)
        self.position -= len(data)


def _trailing(reader: _Reader) -> None:
    """What follows the last member: zero bytes are padding (tapes, block devices), anything else is reported."""
    start = reader.position
    while data := reader.take(READ_BYTES):
        if data.strip(b"\0"):
            detail = f"data that is no compressed member from byte {start} of the compressed file"
            raise FileProblem("trailing_garbage", detail, data, clean_end=True)


def _gzip(reader: _Reader) -> Iterator[bytes]:
    if reader.peek(2) != GZIP_MAGIC:
        raise FileProblem("not_compressed", "the name says gzip, the bytes do not", reader.peek(200))
    while reader.peek(2) == GZIP_MAGIC:
        yield from _gzip_member(reader)
    _trailing(reader)


def _gzip_member(reader: _Reader) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    data = b""
    while not member.eof:
        data = member.unconsumed_tail or reader.take(1 << 16)
        if not data:
            detail = f"the gzip stream ends inside a member, at byte {reader.position} of the compressed file"
            raise FileProblem("truncated_stream", detail)
        try:
            out = member.decompress(data, READ_BYTES)
        except zlib.error as error:
            detail = f"gzip, before byte {reader.position} of the compressed file: {error}"
            raise FileProblem("corrupt_stream", detail) from None
        if out:
            yield out
    reader.untake(member.unused_data)


def _is_frame(head: bytes) -> bool:
    return head == ZSTD_MAGIC or _is_skippable(head)


def _is_skippable(head: bytes) -> bool:
    return len(head) == 4 and head[0] & 0xF0 == 0x50 and head[1:] == b"\x2a\x4d\x18"


def _zstd(reader: _Reader) -> Iterator[bytes]:
    if not _is_frame(reader.peek(4)):
        raise FileProblem("not_compressed", "the name says zstd, the bytes do not", reader.peek(200))
    while _is_frame(reader.peek(4)):
        if _is_skippable(reader.take(4)):
            left = int.from_bytes(_need(reader, 4), "little")
            while left:
                left -= len(_need(reader, min(left, READ_BYTES)))
        else:
            yield from _zstd_frame(reader)
    _trailing(reader)


def _need(reader: _Reader, size: int) -> bytes:
    data = reader.take(size)
    if len(data) < size:
        detail = f"the zstd stream ends inside a frame, at byte {reader.position} of the compressed file"
        raise FileProblem("truncated_stream", detail)
    return data


def _zstd_frame(reader: _Reader) -> Iterator[bytes]:
    """One frame after its magic: header, blocks, checksum (RFC 8878, 3.1.1). Blocks decode to 128 KiB at most."""
    frame = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
    descriptor = _need(reader, 1)
    single_segment = descriptor[0] & 0x20
    content_size = (1 if single_segment else 0, 2, 4, 8)[descriptor[0] >> 6]
    rest = (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor[0] & 3] + content_size
    try:
        yield frame.decompress(ZSTD_MAGIC + descriptor + _need(reader, rest))
        last = False
        while not last:
            header = _need(reader, 3)
            value = int.from_bytes(header, "little")
            last = bool(value & 1)
            size = 1 if (value >> 1) & 3 == 1 else value >> 3  # a run-length block stores one byte
            block = header + _need(reader, size)
            if last and descriptor[0] & 4:
                block += _need(reader, 4)  # the checksum goes with the last block: wrong content is not delivered
            if out := frame.decompress(block):
                yield out
    except zstandard.ZstdError as error:
        detail = f"zstd, before byte {reader.position} of the compressed file: {error}"
        raise FileProblem("corrupt_stream", detail) from None
