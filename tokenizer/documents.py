"""Document shards as the tokenizer reads them: a manifest, files checked on demand, and a seeded sample of texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from pyarrow import ipc

from schemas.arrow import DOCUMENT
from schemas.errors import UserError
from schemas.manifest import MANIFEST_NAME, DocumentManifest, ShardEntry, read_manifest

READ_BLOCK = 4 << 20
COLUMNS = ["doc_id", "text", "source"]
DAMAGE = (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError)
# Batches of a shard that a small sample touches at least, so that shards sorted by source are still sampled evenly.
SPREAD = 4


@dataclass(frozen=True)
class Documents:
    """A folder of document shards."""

    folder: Path
    manifest: DocumentManifest

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.manifest.shards)

    @property
    def text_bytes(self) -> int:
        return sum(shard.text_bytes for shard in self.manifest.shards)

    def path(self, shard: ShardEntry) -> Path:
        return self.folder / shard.path


def open_documents(folder: str | Path) -> Documents:
    """The document shards in `folder`, or in `folder`/shards. Raises UserError if there is no finished run."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give the folder that `prep clean` wrote")
    shards = folder / "shards"
    if not (folder / MANIFEST_NAME).exists() and shards.is_dir():
        folder = shards
    documents = Documents(folder, read_manifest(DocumentManifest, folder))
    if not documents.rows:
        raise UserError(f"{folder}: the manifest lists no documents")
    return documents


class Shard:
    """An open document shard. Whatever is wrong with its bytes becomes a UserError that names it."""

    def __init__(self, path: Path, reader: ipc.RecordBatchFileReader) -> None:
        self._path, self._reader = path, reader
        self.batches: int = reader.num_record_batches

    def batch(self, index: int) -> pa.RecordBatch:
        """doc_id, text and source of a record batch."""
        try:
            return self._reader.get_batch(index).select(COLUMNS)
        except DAMAGE as error:
            raise _unreadable(self._path, error) from None


def _unreadable(path: Path, error: Exception) -> UserError:
    return UserError(f"{path}: cannot be read as a document shard: {error}")


@contextmanager
def open_shard(path: Path) -> Iterator[Shard]:
    """Open a shard, mapped into memory. Raises UserError if it is missing, damaged, or not of document shards."""
    try:
        source = pa.memory_map(str(path))
        reader = ipc.open_file(source)
    except DAMAGE as error:
        raise _unreadable(path, error) from None
    with source, reader:
        for name in COLUMNS:
            found = reader.schema.field(name).type if name in reader.schema.names else "nothing"
            if found != DOCUMENT.field(name).type:
                raise UserError(f"{path}: column {name} holds {found}, not {DOCUMENT.field(name).type}")
        yield Shard(path, reader)


def checksum(path: Path) -> str:
    """xxh3-128 of a file, 32 hexadecimal digits. Raises UserError if it cannot be read."""
    digest = xxhash.xxh3_128()
    try:
        with path.open("rb") as stream:
            while block := stream.read(READ_BLOCK):
                digest.update(block)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return digest.hexdigest()


def verify(path: Path, shard: ShardEntry) -> None:
    """Compare a shard with its manifest entry. Raises UserError naming the shard if one byte differs."""
    found = checksum(path)
    if found != shard.checksum:
        raise UserError(
            f"{path}: damaged: checksum {found}, but the manifest says {shard.checksum}; "
            "restore the file or run `prep clean` again"
        )


def seeded_order(count: int, *keys: int) -> npt.NDArray[np.int64]:
    """A permutation of range(count) that depends on the keys only, on any machine and NumPy version."""
    digest = xxhash.xxh3_64_intdigest(b"".join(key.to_bytes(8, "little", signed=True) for key in keys))
    with np.errstate(over="ignore"):
        x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(digest)
        # splitmix64 (Steele et al. 2014)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return np.argsort(x, kind="stable").astype(np.int64)


def sample(documents: Documents, seed: int, budget: int) -> Iterator[list[str]]:
    """Texts of about `budget` UTF-8 bytes in all (never more), a function of (manifest, seed, budget).

    Each shard gives its share by size. In a shard a few batches are read in seeded order, and in a batch documents
    are taken in seeded order, so sources appear in proportion. A text that does not fit the rest of a share is cut.
    """
    total = documents.text_bytes
    for number, shard in enumerate(documents.manifest.shards):
        share = shard.text_bytes if budget >= total else budget * shard.text_bytes // total
        if share:
            yield from _sample_shard(documents.path(shard), share, share / shard.text_bytes, (seed, number))


def _sample_shard(path: Path, share: int, rate: float, keys: tuple[int, int]) -> Iterator[list[str]]:
    with open_shard(path) as opened:
        batches = opened.batches
        visits = min(batches, max(SPREAD, int(np.ceil(SPREAD * rate * batches))))
        left = share
        for visit, index in enumerate(seeded_order(batches, *keys)[:visits]):
            text = opened.batch(int(index)).column("text")
            portion = left if rate >= 1 else left // (visits - visit)
            texts, used = _take(text, portion, seeded_order(len(text), *keys, int(index)))
            left -= used
            if texts:
                yield texts


def _take(text: pa.LargeStringArray, budget: int, order: npt.NDArray[np.int64]) -> tuple[list[str], int]:
    """Texts in the given order up to `budget` bytes, and the bytes taken; the last is cut to what is left."""
    sizes = np.asarray(pc.binary_length(text))[order]
    ends = np.cumsum(sizes)
    whole = int(np.searchsorted(ends, budget, side="right"))
    texts: list[str] = text.take(pa.array(order[:whole])).to_pylist()  # `tokenizers` trains on Python strings
    used = int(ends[whole - 1]) if whole else 0
    if whole < len(order) and budget > used:
        cut = text[int(order[whole])].as_py().encode()[: budget - used].decode(errors="ignore")
        texts.append(cut)
        used += len(cut.encode())
    return texts, used
