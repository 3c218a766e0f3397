"""Files that are known to be whole: checksums of what was written, forced to disk, published by rename."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import xxhash

CHUNK_BYTES = 1 << 22


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
