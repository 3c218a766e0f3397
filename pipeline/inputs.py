"""The listing of a source's files, and its cut into tasks. Both depend on nothing but the files and the settings."""

from __future__ import annotations

import fnmatch
import glob
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, takewhile
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pipeline.readers.contract import InputFile, InputSource, ReadTask, Slice
from pipeline.readers.streams import filesystem, open_random
from schemas.errors import UserError

COMPRESSIONS = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}
FORMATS = {
    "jsonl": ("jsonl", "ndjson", "jsonlines"),
    "parquet": ("parquet", "pq"),
    "html": ("html", "htm", "xhtml"),
    "text": (
        *("txt", "text", "md", "markdown", "rst", "tex", "py", "pyi", "c", "h", "cc", "cpp", "cxx", "hh", "hpp"),
        *("java", "js", "mjs", "ts", "tsx", "jsx", "go", "rs", "rb", "php", "pl", "sh", "bash", "sql", "scala"),
        *("kt", "swift", "cs", "lua", "jl", "hs", "ml", "clj", "ex", "erl", "css", "toml", "ini", "cfg", "yaml", "yml"),
    ),
}
FORMAT_OF = {"." + ending: kind for kind, endings in FORMATS.items() for ending in endings}
# What other programs leave beside data; never input.
MARKERS = frozenset({"_SUCCESS", "_metadata", "_common_metadata"})
# A compressed text file weighs as much as the text that comes out, about.
EXPANSION = 4
FOOTER_THREADS = 16


def list_inputs(source: InputSource) -> list[InputFile]:
    """The files of a source, sorted by name, each once.

    A path is a file, a folder (read recursively) or a pattern with *, ?, [...] or **; local, or a URL of a file system
    that pyarrow knows (file, s3, gs, hdfs; in URLs a `?` begins the query and is no wildcard). Hidden files (leading
    dot) and marker files such as _SUCCESS are left out. Raises UserError where a path matches nothing or a file's
    format is neither stated nor clear from its name.
    """
    found: dict[tuple[str, str], pafs.FileInfo] = {}
    roots: list[str] = []
    for pattern in source.paths:
        base, prefix, matches = _expand(pattern)
        if not matches:
            raise UserError(f"source {source.name!r}: {pattern!r} matches no file; check the path or the pattern")
        roots.append(_full(base, prefix))
        found.update({(base, info.path): info for info in matches})
    common = _common_folder(roots)
    files = [_describe(source, base, info, common) for (base, _), info in found.items()]
    return _each_once(sorted(files, key=lambda file: file.name))


def _each_once(files: list[InputFile]) -> list[InputFile]:
    """Leave out local files that were reached before under another name, through a link; the real name comes first."""
    seen: set[str] = set()
    chosen = []
    for file in sorted(
        files, key=lambda file: file.path != os.path.realpath(file.path) if not file.filesystem else False
    ):
        real = file.path if file.filesystem else os.path.realpath(file.path)
        if (key := file.filesystem + real) not in seen:
            seen.add(key)
            chosen.append(file)
    return sorted(chosen, key=lambda file: file.name)


def _describe(source: InputSource, base: str, info: pafs.FileInfo, common: str) -> InputFile:
    path = info.path
    if info.size is None:
        raise UserError(f"source {source.name!r}: {path!r} is no regular file: remove it or narrow the path")
    name = _full(base, path)
    name = name[len(common) :].lstrip("/") if common else name
    stem, ending = posixpath.splitext(path.lower())
    compression = COMPRESSIONS.get(ending)
    kind = source.format or FORMAT_OF.get(posixpath.splitext(stem)[1] if compression else ending)
    if kind is None:
        raise UserError(
            f"source {source.name!r}: cannot tell the format of {path!r} from its name; "
            f"set format: to one of {', '.join(FORMATS)}, or narrow the path"
        )
    if kind not in FORMATS:
        raise UserError(f"source {source.name!r}: unknown format {kind!r}; known: {', '.join(FORMATS)}")
    if kind == "parquet" and compression:
        raise UserError(f"source {source.name!r}: {path!r}: Parquet compresses inside the file; decompress it first")
    return InputFile(name, base, path, kind, compression, info.size, info.mtime_ns or 0)


def _full(base: str, path: str) -> str:
    """Path with its file system, so that equal paths of two file systems stay apart."""
    if not base:
        return path
    parts = urlsplit(base)
    return f"{parts.scheme}://{parts.netloc if parts.scheme == 'hdfs' else ''}/{path.lstrip('/')}"


def _common_folder(roots: Sequence[str]) -> str:
    """The deepest folder that holds all roots, without its final slash; "" where they share none."""
    first, *others = [root.rstrip("/").split("/") for root in roots]
    for other in others:
        same = takewhile(lambda pair: pair[0] == pair[1], zip(first, other, strict=False))
        first = [part for part, _ in same]
    return "/".join(first)


def _expand(pattern: str) -> tuple[str, str, list[pafs.FileInfo]]:
    """(file system URI, fixed folder of the pattern, matching files). Raises UserError if the place cannot be read."""
    is_url = re.match(r"[a-z][a-z0-9+.-]*://", pattern) is not None
    try:
        base, path = _locate(pattern) if is_url else ("", os.path.abspath(os.path.expanduser(pattern)))
        store = filesystem(base)
        literal = store.get_file_info(path)
        if literal.type in (pafs.FileType.File, pafs.FileType.Unknown):
            return base, posixpath.dirname(path), [literal]
        if literal.type == pafs.FileType.Directory:
            return base, path, list(_walk(store, path))
        fixed, rest = _split_pattern(path)
        matches = {info.path: info for info in _match(store, fixed, rest)}
        return base, fixed, list(matches.values())
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"cannot list {pattern!r}: {error}") from None
    except UnicodeError:
        raise UserError(f"cannot list {pattern!r}: a file name there is not UTF-8; rename the file") from None


def _locate(url: str) -> tuple[str, str]:
    """(URI of the file system with its options, path in it). The wildcards never pass through the URI parser."""
    parts = urlsplit(url, allow_fragments=False)
    if parts.scheme == "file":
        return "", parts.path
    bucket = "" if parts.scheme == "hdfs" else parts.netloc.rpartition("@")[2]
    base = urlunsplit((parts.scheme, parts.netloc, "/" if parts.scheme == "hdfs" else "", parts.query, ""))
    return base, bucket + parts.path


def _split_pattern(path: str) -> tuple[str, list[str]]:
    """The folder before the first wildcard, and the segments from there on."""
    segments = path.split("/")
    wild = next((k for k, segment in enumerate(segments) if glob.has_magic(segment)), len(segments) - 1)
    return "/".join(segments[:wild]) or "/", segments[wild:]


def _is_input(name: str) -> bool:
    return not name.startswith(".") and name not in MARKERS


def _children(store: pafs.FileSystem, folder: str) -> list[pafs.FileInfo]:
    """What a folder holds, hidden entries and links back to a folder above left out.

    What is neither file nor folder (a pipe, a link to nothing) is listed as a file without a size, to be refused.
    """
    selector = pafs.FileSelector(folder, allow_not_found=True)
    entries = [info for info in store.get_file_info(selector) if _is_input(info.base_name)]
    if not isinstance(store, pafs.LocalFileSystem):
        return entries
    listed = {info.base_name for info in entries}
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        if name not in listed and _is_input(name):
            name.encode("utf-8")  # a UnicodeError names the folder
            entries.append(pafs.FileInfo(os.path.join(folder, name), pafs.FileType.Unknown))
    return [info for info in entries if not _leads_up(folder, info.path)]


def _leads_up(folder: str, path: str) -> bool:
    """Whether a local entry is a link to the folder that holds it or to one above: following it would not end."""
    return (
        os.path.islink(path)
        and os.path.isdir(path)
        and f"{os.path.realpath(folder)}/".startswith(f"{os.path.realpath(path).rstrip('/')}/")
    )


def _walk(store: pafs.FileSystem, folder: str) -> Iterator[pafs.FileInfo]:
    """All files below a folder, hidden ones and hidden folders left out."""
    if isinstance(store, pafs.LocalFileSystem):
        for info in _children(store, folder):
            if info.type == pafs.FileType.Directory:
                yield from _walk(store, info.path)
            else:
                yield info
        return
    selector = pafs.FileSelector(folder, recursive=True, allow_not_found=True)
    inside = len(folder.rstrip("/")) + 1
    for info in store.get_file_info(selector):
        if info.type == pafs.FileType.File and all(_is_input(part) for part in info.path[inside:].split("/")):
            yield info


def _match(store: pafs.FileSystem, folder: str, segments: list[str]) -> Iterator[pafs.FileInfo]:
    """Files below `folder` that match the pattern's segments, one folder level a segment, any number for `**`."""
    segment, rest = segments[0], segments[1:]
    if segment == "**":
        if rest:
            yield from _match(store, folder, rest)
        for info in _children(store, folder):
            if info.type == pafs.FileType.Directory:
                yield from _match(store, info.path, segments)
            elif not rest:
                yield info
        return
    for info in _children(store, folder):
        if not fnmatch.fnmatchcase(info.base_name, segment):
            continue
        if info.type == pafs.FileType.Directory:
            yield from _match(store, info.path, rest) if rest else _walk(store, info.path)
        elif not rest:
            yield info


def split_tasks(source: InputSource, files: Sequence[InputFile], target_bytes: int) -> list[ReadTask]:
    """Cut the files of one source into tasks of about `target_bytes` of input.

    Plain JSONL is cut at byte ranges and Parquet at row groups; other files stay whole. Neighbours that are small share
    a task. Parquet footers are read only where a file exceeds the target; one that cannot be read leaves the
    file whole, to be set aside by its reader.
    """
    if target_bytes < 1:
        raise UserError(f"target_bytes = {target_bytes}: must be at least 1")
    large = [file for file in files if file.format == "parquet" and file.size > target_bytes]
    with ThreadPoolExecutor(FOOTER_THREADS) as pool:
        groups = dict(zip(large, pool.map(_row_group_sizes, large), strict=True))
    tasks: list[ReadTask] = []
    held: list[Slice] = []
    size = 0
    for file in files:
        for piece, weight in _pieces(file, groups.get(file, []), target_bytes):
            if held and size + weight > target_bytes:
                tasks.append(ReadTask(source, tuple(held)))
                held, size = [], 0
            held.append(piece)
            size += weight
    if held:
        tasks.append(ReadTask(source, tuple(held)))
    return tasks


def _pieces(file: InputFile, group_sizes: list[int], target: int) -> Iterator[tuple[Slice, int]]:
    """Slices of one file with their weights in bytes."""
    if file.compression:
        yield Slice(file), file.size * EXPANSION
    elif file.format == "jsonl" and file.size > target:
        count = -(-file.size // target)
        edges = [file.size * k // count for k in range(count + 1)]
        for start, end in pairwise(edges):
            yield Slice(file, start, end), end - start
    elif len(group_sizes) > 1:
        start = size = 0
        for group, weight in enumerate(group_sizes):
            if group > start and size + weight > target:
                yield Slice(file, start, group), size
                start, size = group, 0
            size += weight
        yield Slice(file, start, len(group_sizes)), size
    else:
        yield Slice(file), file.size


def _row_group_sizes(file: InputFile) -> list[int]:
    """Uncompressed bytes of each row group, or [] if the footer cannot be read."""
    try:
        with open_random(file) as stream:
            meta = pq.read_metadata(stream)
        return [meta.row_group(k).total_byte_size for k in range(meta.num_row_groups)]
    except (OSError, pa.ArrowException):
        return []
