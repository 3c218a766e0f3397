"""A small seeded corpus in every format, with planted duplicates and defects."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

WORDS = [
    a + b + c
    for a in ("ba", "co", "di", "fe", "gu", "ha", "je", "ki", "lo", "mu")
    for b in ("la", "re", "ni", "so", "tu", "va")
    for c in ("n", "s", "t", "r", "ck")
]
STOPS = ["the", "of", "and", "to", "with"]
HAN = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工"


def english(rng: random.Random, words: int) -> str:
    text = [rng.choice(STOPS) if rng.random() < 0.3 else rng.choice(WORDS) for _ in range(words)]
    return " ".join(text).capitalize() + "."


def chinese(rng: random.Random, characters: int) -> str:
    return "".join(rng.choice(HAN) for _ in range(characters)) + "。"


def edited(rng: random.Random, text: str, edits: int) -> str:
    words = text.split(" ")
    for index in rng.sample(range(len(words)), edits):
        words[index] = rng.choice(WORDS) + "x"
    return " ".join(words)


def write_corpus(folder: Path, documents: int = 240, seed: int = 7) -> dict[str, Any]:
    """Write the files; returns the sources of a recipe, and how many records there are to see."""
    rng = random.Random(seed)
    web = [english(rng, rng.randint(60, 200)) for _ in range(documents)]
    web += [edited(rng, text, 1) for text in web[: documents // 8]]  # near-duplicates
    web += web[documents // 8 : documents // 6]  # exact duplicates
    web += ["Too short to keep.", "Too short to keep, too."]
    rng.shuffle(web)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"text": text, "url": f"http://x/{i}", "n": i}) for i, text in enumerate(web)]
    lines[3:3] = [
        '{"text": null}',
        '{"url": 1}',
        "not json",
        '{"text": 5}',
        '{"text": "\\ud800"}',
        "[1]",
        '{"text": ""}',
    ]
    half = len(lines) // 2
    (folder / "web-0.jsonl").write_text("\n".join(lines[:half]) + "\n", encoding="utf-8")
    (folder / "web-1.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[half:]).encode(), mtime=0))
    han = [chinese(rng, rng.randint(80, 300)) for _ in range(documents // 4)]
    han += [web[0], han[0]]
    pq.write_table(pa.table({"content": han, "id": list(range(len(han)))}), folder / "han.parquet", row_group_size=20)
    code = folder / "code"
    code.mkdir(exist_ok=True)
    for i in range(12):
        body = "\n".join(f"def {rng.choice(WORDS)}_{j}(x):\n    return x + {j}" for j in range(20))
        (code / f"m{i}.py").write_text(body, encoding="utf-8")
    (code / "m12.py").write_bytes(b"broken \xff\xfe")
    sources = [
        {"name": "web", "paths": [str(folder / "web-*.jsonl*")], "lang": "en", "weight": 0.75},
        {"name": "han", "paths": [str(folder / "han.parquet")], "text_field": "content", "priority": 1},
        {"name": "code", "paths": [str(folder / "code")], "rules": []},
    ]
    return {"sources": sources, "seen": len(lines) + len(han) + 13}


def write_recipe(path: Path, sources: list[dict[str, Any]], output: Path, **changes: Any) -> Path:
    """A recipe with small tasks and shards, so that a small corpus has several of each."""
    recipe = {
        "name": "test",
        "output": str(output),
        "seed": 3,
        "sources": sources,
        "tasks": {"target_bytes": 16_000},
        "shards": {"target_bytes": 60_000},
        "quarantine": {"max_fraction": 0.2},
        **changes,
    }
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path


def shard_bytes(output: Path) -> dict[str, bytes]:
    """Name and bytes of every shard and of the manifest."""
    return {
        path.name: path.read_bytes() for path in sorted((output / "shards").iterdir()) if not path.name.startswith(".")
    }
