"""Texts to token ids: two encoders with one interface, and the check that they agree."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenizer.documents import Documents, open_shard, seeded_order
from tokenizer.saved import SavedTokenizer

# What the check encodes with both: at most this much text a run (but a document of every shard), this much a text.
CHECK_BYTES = 1 << 20
CHECK_TEXT_CHARS = 20_000
# `tokenizers` makes an object of some hundred bytes a token before the ids can be copied out.
GROUP_BYTES = 1 << 20


class Encoded(NamedTuple):
    """Token ids of a batch of texts; text i is ids[offsets[i]:offsets[i + 1]]."""

    ids: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]


class Encoder(Protocol):
    """Both encoders add nothing in front or behind, and take control tokens spelled in a text as ordinary text."""

    name: str

    def encode(self, texts: pa.LargeStringArray) -> Encoded: ...


class HFEncoder:
    """`tokenizers`: the reference, for any kind of tokenizer."""

    name = "tokenizers"

    def __init__(self, saved: SavedTokenizer) -> None:
        self._tokenizer = saved.load()

    def encode(self, texts: pa.LargeStringArray) -> Encoded:
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        parts: list[npt.NDArray[np.uint32]] = []
        for start, stop in groups(texts, GROUP_BYTES):
            strings = texts.slice(start, stop - start).to_pylist()  # the library takes Python strings only
            rows = [e.ids for e in self._tokenizer.encode_batch_fast(strings, add_special_tokens=False)]
            offsets[start + 1 : stop + 1] = [len(row) for row in rows]
            parts += [np.array(row, dtype=np.uint32) for row in rows]
        np.cumsum(offsets, out=offsets)
        ids = np.concatenate(parts) if parts else np.empty(0, dtype=np.uint32)
        return Encoded(ids, offsets)


class GigatokenEncoder:
    """`gigatoken` on the Arrow buffers themselves, on the calling thread. Raises what the library raises on a
    tokenizer it does not know; its panics are BaseExceptions."""

    name = "gigatoken"

    def __init__(self, saved: SavedTokenizer) -> None:
        from gigatoken.gigatoken_rs import load_hf_json

        model = json.loads(saved.text)
        # Without the entry a control token is ordinary text to gigatoken, as for SavedTokenizer.load.
        model["added_tokens"] = [token for token in model.get("added_tokens") or [] if not token["special"]]
        self._backend = load_hf_json(json.dumps(model).encode())

    def encode(self, texts: pa.LargeStringArray) -> Encoded:
        layout = self._backend.encode_batch(_awkward(texts), parallel=False).layout
        offsets = np.asarray(layout.offsets.data, dtype=np.int64)
        ids = np.asarray(layout.content.data)[offsets[0] : offsets[-1]]
        return Encoded(ids.astype(np.uint32, copy=False), offsets - offsets[0])


def text_offsets(texts: pa.LargeStringArray) -> npt.NDArray[np.int64]:
    """The int64 offsets of a large_string array into its value buffer, slices respected."""
    buffer = texts.buffers()[1]
    if not len(texts) or buffer is None:
        return np.zeros(1, dtype=np.int64)
    return np.frombuffer(buffer, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]


def groups(texts: pa.LargeStringArray, limit: int) -> Iterable[tuple[int, int]]:
    """Ranges [start, stop) of texts that hold at most `limit` bytes, or one text."""
    offsets = text_offsets(texts)
    start = 0
    while start < len(texts):
        stop = max(start + 1, int(np.searchsorted(offsets, offsets[start] + limit, side="right")) - 1)
        yield start, stop
        start = stop


def _awkward(texts: pa.LargeStringArray) -> Any:
    """The Arrow buffers as an awkward array of strings; no text is copied and no Python string made."""
    import awkward as ak

    offsets = text_offsets(texts)
    data = texts.buffers()[2]
    values = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    values = values[offsets[0] : offsets[-1]]
    content = ak.contents.NumpyArray(values, parameters={"__array__": "char"})
    index = ak.index.Index64(offsets - offsets[0])
    return ak.Array(ak.contents.ListOffsetArray(index, content, parameters={"__array__": "string"}))


def with_end(encoded: Encoded, eos_id: int, dtype: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """(ids of `dtype`, offsets) with the end id behind every text."""
    offsets = encoded.offsets + np.arange(len(encoded.offsets), dtype=np.int64)
    ids = np.full(int(offsets[-1]), eos_id, dtype=dtype)
    inside = np.ones(len(ids), dtype=bool)
    inside[offsets[1:] - 1] = False
    ids[inside] = encoded.ids
    return ids, offsets


class Choice(NamedTuple):
    """The encoder a run uses, why it is not the fast one (None where it is), and bytes of text a token in the check."""

    name: str
    warning: str | None
    bytes_per_token: float


def make_encoder(name: str, saved: SavedTokenizer) -> Encoder:
    """The encoder of that name."""
    return GigatokenEncoder(saved) if name == GigatokenEncoder.name else HFEncoder(saved)


def choose_encoder(saved: SavedTokenizer, texts: pa.LargeStringArray) -> Choice:
    """Encode `texts` with both; gigatoken is chosen only if every text gets the same ids from both."""
    want = HFEncoder(saved).encode(texts)
    offsets = text_offsets(texts)
    ratio = float(offsets[-1] - offsets[0]) / max(1, len(want.ids))
    try:
        got = GigatokenEncoder(saved).encode(texts)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a Rust panic is a BaseException
        first = next(iter(str(error).splitlines()), type(error).__name__)
        return Choice(HFEncoder.name, f"gigatoken cannot encode with this tokenizer ({first})", ratio)
    text = first_difference(texts, want, got)
    if text is None:
        return Choice(GigatokenEncoder.name, None, ratio)
    return Choice(HFEncoder.name, f"gigatoken and tokenizers differ, for example on {text[:60]!r}", ratio)


def first_difference(texts: pa.LargeStringArray, want: Encoded, got: Encoded) -> str | None:
    """The first text whose ids differ, or None."""
    if len(got.offsets) == len(want.offsets):
        for i in range(len(texts)):
            left = want.ids[want.offsets[i] : want.offsets[i + 1]]
            if not np.array_equal(left, got.ids[got.offsets[i] : got.offsets[i + 1]]):
                return str(texts[i].as_py())
        return None
    return "(another number of texts)"


HARD_CASES = (
    "",
    " ",
    "\n",
    " " * 1000 + "x" + "\n" * 300 + "\t" * 70,
    "a" * 3000,
    "The end. 'tis I'll we've THEY'RE 12345678 3.14 x=1;y\t= 2\r\nnext",
    "今天天气很好,我们去公园。全角 1234 テスト한국어",
    "👩‍👩‍👧‍👦🇨🇳👍🏽 e\u0301 é \u200b\u200d\ufeff\u2028\u00a0\u3000x",
    "\x00\x01\x1b[0m\x7f\ufffd\U0010ffff",
    "שלום عربي हिन्दी ไทย ქართული",
)


def hard_cases(saved: SavedTokenizer) -> list[str]:
    """Texts on which tokenizers tend to differ, with the tokenizer's own added tokens inside."""
    added = [token.content for token in saved.load().get_added_tokens_decoder().values()][:64]
    return [*HARD_CASES, *(text for token in added for text in (token, f"a{token}b {token} {token}{token}\n"))]


def check_texts(documents: Documents, saved: SavedTokenizer, seed: int = 0) -> pa.LargeStringArray:
    """What the check encodes: hard cases and documents of every shard, chosen by the seed, long ones cut."""
    texts = hard_cases(saved)
    shards = documents.manifest.shards
    for number, shard in enumerate(shards):
        with open_shard(documents.path(shard)) as opened:
            batch = int(seeded_order(opened.batches, seed, number)[0])
            column = opened.batch(batch).column("text")
            taken = 0
            for row in seeded_order(len(column), seed, number, batch):
                if taken and taken >= CHECK_BYTES // len(shards):
                    break
                text = column[int(row)].as_py()[:CHECK_TEXT_CHARS]
                taken += len(text.encode())
                texts.append(text)
    return pa.array(texts, type=pa.large_string())
