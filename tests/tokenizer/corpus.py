"""Small document shards with a manifest, as `prep clean` would leave them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import xxhash
from pyarrow import ipc

from schemas.arrow import DOCUMENT
from schemas.manifest import MANIFEST_NAME, Counts, DocumentManifest, ShardEntry, fingerprint, to_json

WORDS = (
    "the model learns from text and a tokenizer cuts it into pieces; we don't know 12 or 3456 of them, "
    "数据 清洗 之后 训练 语言 模型。 今天天气很好，我们去公园散步。 def f(x):\n    return x + 1\n naïve café 😀 "
).split(" ")


def synthetic(count: int, seed: int = 0, words: int = 60) -> list[str]:
    """Texts of varied length and script, the same for the same arguments."""
    texts = []
    for number in range(count):
        digest = hashlib.sha256(f"{seed}/{number}".encode()).digest() * (1 + words // 32)
        texts.append(" ".join(WORDS[byte % len(WORDS)] for byte in digest[: 1 + digest[0] * words // 128]))
    return texts


def documents(texts: Sequence[str], source: str, first: int) -> pa.RecordBatch:
    count = len(texts)
    columns = {
        "doc_id": [hashlib.sha256(f"{source}{first + i}".encode()).digest()[:16] for i in range(count)],
        "text": list(texts),
        "source": [source if i % 3 else "other" for i in range(count)],
        "origin": [f"file#{first + i}" for i in range(count)],
        "lang": [None] * count,
        "lang_score": [None] * count,
        "meta": ["{}"] * count,
    }
    return pa.RecordBatch.from_pydict(columns, schema=DOCUMENT)


def write_documents(folder: Path, shards: Sequence[Sequence[str]], batch_rows: int = 50, source: str = "web") -> Path:
    """Write `folder`/shards with one shard a list of texts; returns `folder`."""
    target = folder / "shards"
    target.mkdir(parents=True)
    entries, first = [], 0
    for number, texts in enumerate(shards):
        path = target / f"shard-{number:05d}.arrow"
        with ipc.new_file(path, DOCUMENT, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
            for start in range(0, len(texts), batch_rows):
                writer.write_batch(documents(texts[start : start + batch_rows], source, first + start))
        first += len(texts)
        entries.append(
            ShardEntry(
                path=path.name,
                rows=len(texts),
                bytes=path.stat().st_size,
                checksum=xxhash.xxh3_128_hexdigest(path.read_bytes()),
                text_bytes=sum(len(text.encode()) for text in texts),
            )
        )
    manifest = DocumentManifest(
        fingerprint=fingerprint([entry.checksum for entry in entries]),
        recipe={},
        counts=Counts(seen=first, kept=first),
        sources={},
        shards=entries,
    )
    (target / MANIFEST_NAME).write_text(to_json(manifest), encoding="utf-8")
    return folder
