"""The output folder of a run, local or on any filesystem that pyarrow.fs knows. Files appear whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash
from pyarrow import fs

from schemas.errors import UserError


@dataclass(frozen=True)
class Storage:
    """Paths are relative to `root`. The object is small and travels to executors; each opens its own connection."""

    root: str

    @classmethod
    def at(cls, uri: str) -> Storage:
        """The folder at a local path or URL. Raises UserError if the filesystem is unknown or cannot be reached."""
        root = uri if "://" in uri else os.path.abspath(os.path.expanduser(uri))
        storage = cls(root)
        try:
            storage.resolve("")
        except (pa.ArrowInvalid, OSError) as error:
            raise UserError(f"output {uri}: cannot be opened: {error}") from None
        if (local := storage.local_path("")) is not None:
            _check_folder(Path(local))
        return storage

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep a second run on this machine out of a local folder; the lock ends with the process, however it ends.

        Raises UserError if another process holds it.
        """
        local = self.local_path(".lock")
        if local is None:
            yield
            return
        os.makedirs(os.path.dirname(local), exist_ok=True)
        with open(local, "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(
                    f"{self.root}: another run is writing here; wait for it or state another output"
                ) from None
            yield

    def resolve(self, path: str) -> tuple[fs.FileSystem, str]:
        """The filesystem and the absolute path in it."""
        filesystem, base = (
            fs.FileSystem.from_uri(self.root) if "://" in self.root else (fs.LocalFileSystem(), self.root)
        )
        return filesystem, f"{base.rstrip('/')}/{path}" if path else base

    def local_path(self, path: str) -> str | None:
        """The path for tools that need a local file, or None on another filesystem."""
        filesystem, full = self.resolve(path)
        return full if isinstance(filesystem, fs.LocalFileSystem) else None

    def exists(self, path: str) -> bool:
        filesystem, full = self.resolve(path)
        return filesystem.get_file_info(full).type != fs.FileType.NotFound

    def names(self, folder: str) -> list[str]:
        """Names of the finished files in a folder, sorted; empty if there is no such folder."""
        filesystem, full = self.resolve(folder)
        infos = filesystem.get_file_info(fs.FileSelector(full, allow_not_found=True))
        return sorted(info.base_name for info in infos if info.is_file and not info.base_name.startswith("."))

    def open(self, path: str) -> pa.NativeFile:
        """A random-access file for reading; memory-mapped where it is local."""
        filesystem, full = self.resolve(path)
        if isinstance(filesystem, fs.LocalFileSystem):
            return pa.memory_map(full)
        return filesystem.open_input_file(full)

    @contextmanager
    def create(self, path: str) -> Iterator[pa.NativeFile]:
        """Write a file aside and publish it by rename when the block ends without an error.

        A task that runs twice replaces the file with equal bytes; a killed one leaves a hidden file that nothing reads.
        """
        filesystem, full = self.resolve(path)
        folder, _, name = full.rpartition("/")
        aside = f"{folder}/.{name}.{uuid.uuid4().hex[:8]}"
        filesystem.create_dir(folder, recursive=True)
        try:
            with filesystem.open_output_stream(aside) as sink:
                yield sink
        except BaseException:
            if filesystem.get_file_info(aside).type != fs.FileType.NotFound:
                filesystem.delete_file(aside)
            raise
        filesystem.move(aside, full)

    def write_text(self, path: str, text: str) -> None:
        with self.create(path) as sink:
            sink.write(text.encode("utf-8"))

    def read_text(self, path: str) -> str:
        filesystem, full = self.resolve(path)
        with filesystem.open_input_stream(full) as stream:
            return stream.read().decode("utf-8")

    def write_json(self, path: str, value: Any) -> None:
        self.write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

    def read_json(self, path: str) -> Any:
        """The value in a file, or None if the file is missing or damaged: then its stage is not done."""
        try:
            return json.loads(self.read_text(path))
        except (OSError, ValueError):
            return None

    def stamp(self, path: str) -> dict[str, Any] | None:
        """Size in bytes and checksum (xxh3-128, hexadecimal) of a file; None if it is not there."""
        if not self.exists(path):
            return None
        digest = xxhash.xxh3_128()
        size = 0
        filesystem, full = self.resolve(path)
        with filesystem.open_input_stream(full) as stream:
            while block := stream.read(1 << 22):
                digest.update(block)
                size += len(block)
        return {"bytes": size, "checksum": digest.hexdigest()}

    def sweep(self, folder: str) -> None:
        """Delete what killed writers left aside in a folder; only when nothing writes there any more."""
        filesystem, full = self.resolve(folder)
        for info in filesystem.get_file_info(fs.FileSelector(full, allow_not_found=True)):
            if info.is_file and info.base_name.startswith("."):
                filesystem.delete_file(info.path)

    def remove(self, path: str) -> None:
        """Delete a file or folder with all it holds, if it is there."""
        filesystem, full = self.resolve(path)
        kind = filesystem.get_file_info(full).type
        if kind == fs.FileType.Directory:
            filesystem.delete_dir(full)
        elif kind != fs.FileType.NotFound:
            filesystem.delete_file(full)


def _check_folder(path: Path) -> None:
    """Raise UserError unless the folder is there, or can be made, and can be written; makes nothing."""
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise UserError(f"output {path}: {existing} is a file: state another output")
    if not os.access(existing, os.W_OK | os.X_OK) or not os.statvfs(existing).f_blocks:
        raise UserError(f"output {path}: {existing} cannot be written: state another output")
