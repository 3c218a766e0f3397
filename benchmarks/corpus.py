"""Real text as plain JSONL of a wanted size: a sample of it, or several copies with altered words."""

from __future__ import annotations

import io
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zstandard

from schemas.errors import UserError

DATA_VARIABLE = "PREP_TEST_DATA"
# What a copy moves about: runs of letters or digits, single CJK characters.
WORD = re.compile(r"([A-Za-z]+|[0-9]+|[\u3400-\u9fff])")
ALTERED = 0.3


@dataclass(frozen=True)
class Input:
    """A folder of JSONL files; documents and megabytes of text (10^6 bytes of UTF-8), also by file of origin."""

    folder: Path
    documents: int
    mb: float
    mb_by_file: dict[str, float]


def corpus_files(folder: str | None, only: Sequence[str] | None = None) -> list[Path]:
    """FOLDER/corpus/*.jsonl.zst, or those named in `only`. Raises UserError if there is none."""
    root = folder or os.environ.get(DATA_VARIABLE)
    if not root:
        raise UserError(f"no text: give --data DIR or set {DATA_VARIABLE}; DIR/corpus/*.jsonl.zst is read")
    files = sorted(Path(root).glob("corpus/*.jsonl.zst"))
    known = [_stem(path) for path in files]
    for name in only or ():
        if name not in known:
            raise UserError(f"no {name}.jsonl.zst in {root}/corpus: it has {', '.join(known) or 'no such file'}")
    chosen = [path for path in files if not only or _stem(path) in only]
    if not chosen:
        raise UserError(f"{root}/corpus has no *.jsonl.zst")
    return chosen


def corpus_mb(files: Sequence[Path]) -> float:
    """Megabytes of UTF-8 text in the files."""
    return sum(len(text.encode()) for path in files for text in _texts(path)) / 1e6


def write_input(folder: Path, files: Sequence[Path], times: float, parts: int) -> Input:
    """Write about `times` the corpus as `parts` files of equal size.

    Below 1: every (1/times)th document of each file. Above: copies whose words are altered, each sampled alike.
    """
    copies = max(1, math.ceil(times - 1e-9))
    rate = times / copies
    folder.mkdir(parents=True)
    sizes, written, by_file = [0] * parts, 0, dict.fromkeys(map(_stem, files), 0)
    with ExitStack() as stack:
        sinks = [stack.enter_context((folder / f"{part:03d}.jsonl").open("wb")) for part in range(parts)]
        for copy in range(copies):
            for path in files:
                for text in _sampled(path, rate, copy):
                    body = json.dumps({"id": str(written), "text": text}, ensure_ascii=False).encode()
                    part = sizes.index(min(sizes))
                    sizes[part] += sinks[part].write(body + b"\n")
                    by_file[_stem(path)] += len(text.encode())
                    written += 1
    return Input(folder, written, sum(by_file.values()) / 1e6, {name: size / 1e6 for name, size in by_file.items()})


def altered(text: str, share: float, rng: np.random.Generator) -> str:
    """The text with `share` of its words shuffled among their places: same words, same size, other shingles."""
    pieces = WORD.split(text)
    places = np.flatnonzero(rng.random(len(pieces) // 2) < share) * 2 + 1
    moved = [pieces[place] for place in rng.permutation(places)]
    for place, word in zip(places.tolist(), moved, strict=True):
        pieces[place] = word
    return "".join(pieces)


def _sampled(path: Path, rate: float, copy: int) -> Iterator[str]:
    rng = np.random.default_rng(copy)
    for index, text in enumerate(_texts(path)):
        if math.floor((index + 1) * rate + 1e-9) > math.floor(index * rate + 1e-9):
            yield altered(text, ALTERED, rng) if copy else text


def _texts(path: Path) -> Iterator[str]:
    with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as plain:
        for line in io.TextIOWrapper(plain, encoding="utf-8", newline="\n"):
            yield json.loads(line)["text"]


def _stem(path: Path) -> str:
    return path.name.removesuffix(".jsonl.zst")
