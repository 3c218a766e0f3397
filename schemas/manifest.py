"""Manifests: what a folder of shards holds, checkable byte for byte, with no clock or host in it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from schemas.config import StrictModel, parse_model
from schemas.errors import UserError

MANIFEST_NAME = "manifest.json"
FORMAT_VERSION = 1

ManifestT = TypeVar("ManifestT", bound=StrictModel)


class ShardEntry(StrictModel):
    """One shard file."""

    path: str = Field(description="file name relative to the manifest")
    rows: int = Field(description="documents in the file")
    bytes: int = Field(description="size of the file in bytes")
    checksum: str = Field(description="xxh3-128 of the file, 32 hexadecimal digits")
    text_bytes: int = Field(default=0, description="UTF-8 bytes of text (document shards)")
    tokens: int = Field(default=0, description="tokens, end-of-document ids included (token shards)")
    sources: dict[str, int] = Field(default_factory=dict, description="documents by source")


class Counts(StrictModel):
    """Documents at a stage. `in = kept + dropped + quarantined` holds or the stage fails."""

    seen: int = Field(description="records seen in the input")
    kept: int = Field(description="documents kept")
    dropped: dict[str, int] = Field(default_factory=dict, description="documents dropped, by reason")
    quarantined: dict[str, int] = Field(default_factory=dict, description="records set aside, by reason")

    def closes(self) -> bool:
        """Whether in = kept + dropped + quarantined."""
        return self.seen == self.kept + sum(self.dropped.values()) + sum(self.quarantined.values())


class DocumentManifest(StrictModel):
    """Manifest of a folder of document shards."""

    kind: Literal["documents"] = "documents"
    version: int = FORMAT_VERSION
    fingerprint: str = Field(description="hash of recipe and input listing")
    recipe: dict[str, Any] = Field(description="the recipe as resolved")
    counts: Counts
    sources: dict[str, Counts] = Field(description="counts by source")
    shards: list[ShardEntry]


class TokenizerRef(StrictModel):
    """The tokenizer that produced token shards."""

    fingerprint: str = Field(description="SHA-256 of tokenizer.json, 64 hexadecimal digits")
    vocab_size: int = Field(description="ids are in [0, vocab_size)")
    eos_token: str
    eos_id: int


class TokenManifest(StrictModel):
    """Manifest of a folder of token shards."""

    kind: Literal["tokens"] = "tokens"
    version: int = FORMAT_VERSION
    fingerprint: str = Field(description="hash of shard checksums, tokenizer and dtype")
    tokenizer: TokenizerRef
    documents_fingerprint: str = Field(description="fingerprint of the document shards read")
    dtype: Literal["uint16", "uint32"]
    documents: int
    tokens: int
    shards: list[ShardEntry]


def fingerprint(value: Any) -> str:
    """SHA-256 (32 hexadecimal digits) of a JSON value in canonical form: sorted keys, no blanks, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


def to_json(manifest: StrictModel) -> str:
    """The manifest as text: the same bytes for equal manifests."""
    return json.dumps(manifest.model_dump(mode="json"), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_manifest(model: type[ManifestT], folder: str | Path) -> ManifestT:
    """Read the manifest of a local shard folder. Raises UserError if it is missing, damaged or of another kind."""
    path = Path(folder) / MANIFEST_NAME
    if not path.parent.is_dir():
        raise UserError(
            f"{folder}: no such folder (looked for {path.parent.absolute()}); run the step that makes it first"
        )
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{folder}: no {MANIFEST_NAME}; it is written last, so the run that makes this folder has not finished"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    expected = model.model_fields["kind"].default
    if not isinstance(values, dict) or values.get("kind") != expected:
        found = values.get("kind") if isinstance(values, dict) else type(values).__name__
        raise UserError(f"{path}: holds {found!r} shards, but {expected!r} shards are needed here")
    return parse_model(model, values, str(path))
