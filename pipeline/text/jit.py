"""Compile a kernel once per machine, never per task.

numba keeps compiled code next to the source, or for zipped sources in a folder keyed by the zip's path. A Spark
executor unpacks `--py-files` into a new folder for every application, so both would compile again each time. Here
the cache lies in one writable folder per user, keyed by the *content* of all kernel sources: a kernel that inlines
a changed one from another file is compiled again, and the same code is found again wherever it lies.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from numba.core import caching

ROOT = "pipeline"
KERNEL_ROOMS = ("text", "readers")


def _is_private_folder(path: Path) -> bool:
    """Create `path` if need be; true if it is writable and no other user owns it (cached code is executed)."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.stat().st_uid != os.getuid():
            return False
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


@lru_cache(maxsize=1)
def cache_root() -> Path:
    """The folder for compiled kernels: CORPUSMILL_CACHE, else the user's cache folder, else a private one in tmp."""
    stated = os.environ.get("CORPUSMILL_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    candidates = [Path(stated)] if stated else []
    candidates += [
        Path(home) / "corpusmill" / "kernels",
        Path(tempfile.gettempdir()) / f"corpusmill-{os.getuid()}" / "kernels",
    ]
    for folder in candidates:
        if _is_private_folder(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix="corpusmill-kernels-"))


@cache
def kernels_stamp() -> str:
    """Hash of all sources of the rooms that hold kernels, read without importing them, from a folder or a zip."""
    digest = hashlib.sha256()
    for room in KERNEL_ROOMS:
        sources = [entry for entry in files(ROOT).joinpath(room).iterdir() if entry.name.endswith(".py")]
        for entry in sorted(sources, key=lambda entry: entry.name):
            digest.update(f"{room}/{entry.name}\0".encode() + entry.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


class ContentLocator(caching._CacheLocator):
    """Finds compiled kernels of this project by content; leaves every other function to numba's own locators."""

    def __init__(self, py_func: FunctionType) -> None:
        self._function = py_func
        self._path = cache_root() / kernels_stamp()

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return kernels_stamp()

    def get_disambiguator(self) -> str:
        return str(self._function.__code__.co_firstlineno)

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> ContentLocator | None:
        if py_func.__module__.split(".")[0] != ROOT:
            return None
        locator = cls(py_func)
        try:
            locator.ensure_cache_path()
        except OSError:
            return None
        return locator


if ContentLocator not in caching.CacheImpl._locator_classes:
    caching.CacheImpl._locator_classes = [ContentLocator, *caching.CacheImpl._locator_classes]


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`numba.njit` with the project's settings: GIL released, no bounds checks, compiled code cached on disk.

    Integers wrap as in C; a kernel must be given arrays long enough for what it writes.
    """
    settings: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", **options}
    if function is None:
        return lambda inner: numba.njit(**settings)(inner)
    return numba.njit(**settings)(function)
