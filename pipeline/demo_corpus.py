"""A corpus for first steps, from what any machine with Python holds: no download, a few thousand real documents.

    code/   the standard library's sources, as files
    docs/   descriptions, licences and notes of the installed packages, and long docstrings, as JSONL.gz
    web/    pydoc's pages of the standard library's modules, as HTML

Licences and READMEs bring true near-duplicates along, test sources bring lists and tables that quality rules catch.
"""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from schemas.errors import UserError

MARKER = ".demo-corpus.json"  # hidden, so that listings of the folder pass over it
MAX_CODE_BYTES = 40_000
MIN_DOCSTRING = 350
DOCS_PER_FILE = 500
RENDER_TIMEOUT_S = 120
# Shares of `limit`.
SHARES = {"code": 0.4, "docs": 0.4, "web": 0.2}
NOTES = re.compile(r"(?i)(^|/)(licen[cs]e|copying|notice|authors|readme|changelog|changes|history)[^/]*$")
TEXT_ENDINGS = ("", ".txt", ".md", ".rst")

T = TypeVar("T")


@dataclass(frozen=True)
class DemoSummary:
    """What the corpus holds: documents and bytes of text by kind (code, docs, web)."""

    documents: dict[str, int]
    text_bytes: dict[str, int]
    reused: bool = False


def build_demo_corpus(folder: str | Path, limit: int | None = None, force: bool = False) -> DemoSummary:
    """Collect the corpus under `folder`, at most about `limit` documents, spread evenly over what there is.

    The same machine gives the same bytes. An existing corpus is kept unless `force`; the new one appears by rename.
    Raises UserError if `folder` holds something else.
    """
    folder = Path(folder).absolute()
    marker = folder / MARKER
    if marker.is_file() and not force:
        values = json.loads(marker.read_text(encoding="utf-8"))
        return DemoSummary(values["documents"], values["text_bytes"], reused=True)
    if folder.exists() and not marker.is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists and is no demo corpus; name a new or empty folder")
    if limit is not None and limit < 3:
        raise UserError(f"limit = {limit}: must be at least 3, one document a kind")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        summary = _collect(aside, limit)
        (aside / MARKER).write_text(json.dumps(asdict(summary), indent=1), encoding="utf-8")
        aside.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return summary


def _collect(folder: Path, limit: int | None) -> DemoSummary:
    budget = {kind: None if limit is None else max(1, round(limit * share)) for kind, share in SHARES.items()}
    sources = _spread(list(_library_sources()), budget["code"])
    parts = {
        "code": _write_code(folder / "code", sources),
        "docs": _write_docs(folder / "docs", _spread([*_package_notes(), *_docstrings(sources)], budget["docs"])),
        "web": _write_pages(folder / "web", _spread(_module_names(), budget["web"])),
    }
    return DemoSummary({k: v[0] for k, v in parts.items()}, {k: v[1] for k, v in parts.items()})


def _spread(items: Sequence[T], count: int | None) -> list[T]:
    """`count` of the items at even distances, or all."""
    if count is None or count >= len(items):
        return list(items)
    return [items[k * len(items) // count] for k in range(count)]


def _utf8(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return text if text.strip() and "\0" not in text else None


def _library() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


def _library_sources() -> Iterator[tuple[str, str]]:
    """(relative path, text) of the standard library's sources of moderate size, sorted."""
    root = _library()
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if relative.parts[0] in ("site-packages", "dist-packages") or path.stat().st_size > MAX_CODE_BYTES:
            continue
        text = _utf8(path)
        if text is not None:
            yield relative.as_posix(), text


def _write_code(folder: Path, sources: Sequence[tuple[str, str]]) -> tuple[int, int]:
    size = 0
    for relative, text in sources:
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode("utf-8")
        path.write_bytes(data)
        size += len(data)
    return len(sources), size


def _package_notes() -> Iterator[dict[str, str]]:
    """Descriptions, licences, READMEs of the installed packages, sorted by package and file."""
    packages = {dist.metadata["Name"].lower(): dist for dist in metadata.distributions() if dist.metadata["Name"]}
    for name, dist in sorted(packages.items()):
        described = (dist.read_text("METADATA") or "").partition("\n\n")[2]
        if described.strip():
            yield {"text": described, "package": name, "version": dist.version, "kind": "description"}
        for file in sorted(dist.files or (), key=str):
            if not NOTES.search(file.as_posix()) or file.suffix.lower() not in TEXT_ENDINGS:
                continue
            text = _utf8(Path(str(dist.locate_file(file))))
            if text is not None:
                yield {"text": text, "package": name, "version": dist.version, "kind": file.stem.lower()}


def _docstrings(sources: Sequence[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """Long docstrings of the standard library, by parsing it: nothing is imported."""
    version = sys.version.split()[0]
    for relative, text in sources:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue  # the library's tests hold broken sources on purpose
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                words = ast.get_docstring(node)
                if words and len(words) >= MIN_DOCSTRING and _encodable(words):
                    yield {"text": words, "package": relative, "version": version, "kind": "docstring"}


def _encodable(text: str) -> bool:
    return "\0" not in text and not any(0xD800 <= ord(c) <= 0xDFFF for c in text)


def _write_docs(folder: Path, notes: Sequence[dict[str, str]]) -> tuple[int, int]:
    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, len(notes), DOCS_PER_FILE)):
        lines = [json.dumps(note, ensure_ascii=False) + "\n" for note in notes[start : start + DOCS_PER_FILE]]
        data = gzip.compress("".join(lines).encode("utf-8"), compresslevel=6, mtime=0)
        (folder / f"docs-{number:03d}.jsonl.gz").write_bytes(data)
    return len(notes), sum(len(note["text"].encode("utf-8")) for note in notes)


# Importing these opens a browser, prints, starts a window or runs tests; sys and builtins show this very process.
SKIPPED = re.compile(
    r"(antigravity|this|idlelib|test|turtledemo|turtle|tkinter|lib2to3|ensurepip|sys|site|builtins|pip|setuptools)(\.|$)"
    r"|.*(__main__|\.tests?(\.|$)|\.idle_test|__phello__)|_sysconfigdata.*|_bootlocale"
)


def _module_names() -> list[str]:
    """Modules of the standard library, top level and below, that are safe to import, sorted."""
    root = _library()
    below = {
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in root.rglob("*.py")
        if path.parts[len(root.parts)] in sys.stdlib_module_names
    }
    names = set(sys.stdlib_module_names) | {name.removesuffix(".__init__") for name in below}
    return sorted(name for name in names if not SKIPPED.match(name) and name.replace(".", "").isidentifier())


# Runs in a process of its own: an import may fail, hang or write. Addresses and paths would differ between runs.
RENDER = r"""
import importlib, os, pydoc, re, signal, sys
sys.stdout = sys.stderr = open(os.devnull, "w")
folder, library = sys.argv[1:3]
def stop(*_):
    raise TimeoutError
signal.signal(signal.SIGALRM, stop)
for line in sys.stdin:
    name = line.strip()
    signal.alarm(5)
    try:
        module = importlib.import_module(name)
        body = pydoc.html.document(module, name)
        signal.alarm(0)
    except BaseException:
        signal.alarm(0)
        continue
    page = pydoc.html.page(pydoc.describe(module), body).replace(library, "lib").replace(sys.executable, "python")
    page = re.sub(r"\b(at|handle)( |&nbsp;)(0x)?[0-9a-f]{6,16}\b", r"\1\g<2>0x0", page)
    with open(os.path.join(folder, name + ".html"), "w", encoding="utf-8", errors="ignore") as out:
        out.write(page)
os._exit(0)
"""


def _write_pages(folder: Path, names: Sequence[str]) -> tuple[int, int]:
    folder.mkdir(parents=True)
    halves = [names[::2], names[1::2]]
    environment = {"PYTHONHASHSEED": "0", "HOME": "/", "LANG": "C.UTF-8", "TZ": "UTC"}
    command = [sys.executable, "-S", "-W", "ignore", "-c", RENDER, str(folder), str(_library())]
    with tempfile.TemporaryDirectory() as elsewhere:
        workers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, cwd=elsewhere, env=environment, text=True) for _ in halves
        ]
        for worker, half in zip(workers, halves, strict=True):
            assert worker.stdin is not None
            worker.stdin.write("".join(f"{name}\n" for name in half))
            worker.stdin.close()
        for worker in workers:
            try:
                worker.wait(RENDER_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
    sizes = [os.path.getsize(path) for path in sorted(folder.iterdir())]
    return len(sizes), sum(sizes)
