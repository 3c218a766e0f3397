"""Files that are known to be whole: checksums of what was written, forced to disk, published by rename."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError

from schemas.errors import UserError

CHUNK_BYTES = 1 << 22


# What torch's and safetensors' writers say, in C++ and Rust, when a write came up short.
SHORT_WRITE = ("unexpected pos", "enforce fail", "No space left")


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Errors of writing below `path` as UserErrors."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if (message := disk_message(error, path)) is None:
            raise
        raise UserError(message) from None


def disk_message(error: Exception, path: Path | None = None) -> str | None:
    """What to tell the user about a failed write; None if the error is no such thing."""
    place = path or getattr(error, "filename", None) or "output"
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.ENOSPC, errno.EDQUOT) or any(words in str(error) for words in SHORT_WRITE):
        return f"{place}: disk full: free some space and run the same command again"
    if code is None:
        return None
    return f"{place}: {os.strerror(code)}: choose a place that can be written, or change its permissions"


class _HashingFile:
    """A writable file that hashes what passes through."""

    def __init__(self, path: str | Path) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 - closed by save_tensors
        self.hash = xxhash.xxh3_128()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.hash.update(view)
        return self._file.write(view)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


def save_tensors(value: Any, path: str | Path) -> str:
    """torch.save, forced to disk; the xxh3-128 of the bytes that were handed to the disk."""
    file = _HashingFile(path)
    try:
        torch.save(value, file)
    finally:
        file.close()
    return file.hash.hexdigest()


def checksum_from_disk(path: str | Path) -> str:
    """xxh3-128 of a file, read past the page cache where the system allows it."""
    state = xxhash.xxh3_128()
    with open(path, "rb") as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while chunk := file.read(CHUNK_BYTES):
            state.update(chunk)
    return state.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a small file so that it appears whole or not at all."""
    aside = path.with_name(f".{path.name}.tmp")
    with open(aside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Force a file's bytes to disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Force a folder's entries to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
