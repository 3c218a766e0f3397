"""Training byte-level tokenizers on a seeded sample of document shards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from schemas.errors import UserError
from tokenizer.documents import Documents, sample
from tokenizer.saved import SavedTokenizer, fingerprint_text, refuse_existing, save_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Kind = Literal["bpe", "unigram"]
DEFAULT_EOS = "<|endoftext|>"
BYTES = 256
# A text is trained on in pieces: `tokenizers` holds tens of bytes a character of the piece it works on.
PIECE_CHARS = 1 << 16
# A run without blanks (base64, a page of Chinese without punctuation) is cut, so that no single "word" is huge.
RUN_CHARS = 256
LONG_RUN = re.compile(rf"\S{{{RUN_CHARS}}}(?=\S)")


@dataclass(frozen=True)
class TrainerConfig:
    """What decides a tokenizer besides the documents."""

    kind: Kind
    vocab_size: int
    special: tuple[str, ...]
    eos: str
    min_frequency: int
    sample_bytes: int
    seed: int


def resolve_special(special: Iterable[str], eos: str | None) -> tuple[tuple[str, ...], str]:
    """(special tokens in order, end token). The end token is `eos`, else the first that contains "endoftext", else
    <|endoftext|>; it is put first if it is not in the list. Raises UserError on a repeated or unsafe token."""
    names = tuple(name for name in (name.strip() for name in special) if name)
    end = eos or next((name for name in names if "endoftext" in name), DEFAULT_EOS)
    names = names if end in names else (end, *names)
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise UserError(f"--special: {', '.join(sorted(repeated))} is given twice")
    for name in names:
        if not is_text(name):
            raise UserError(f"--special or --eos: {name!r} is not UTF-8: set the terminal to UTF-8 and type it again")
        if "，" in name:
            raise UserError(f"--special: {name!r} holds a full-width comma; separate tokens with the ASCII one")
        _check_spelling(name)
    return names, end


def is_text(name: str) -> bool:
    """Whether a word of the command line was UTF-8: Python keeps other bytes as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _check_spelling(name: str) -> None:
    """A learned token lies inside one pre-token, so a special token of one pre-token could be learned from text, and
    documents would then hold its id unseen."""
    if len(_byte_level().pre_tokenize_str(name)) == 1:
        raise UserError(f"--special: ordinary text can spell {name!r}: bracket it, for example <|{name}|> or [{name}]")


def is_control(name: str, eos: str) -> bool:
    """Control tokens, the end token and names of the form <|...|>, are never matched in documents; others are."""
    return name == eos or (name.startswith("<|") and name.endswith("|>"))


def check_vocab_size(config: TrainerConfig) -> None:
    """Raises UserError if bytes and special tokens alone do not fit."""
    least = BYTES + len(config.special)
    if config.vocab_size < least:
        raise UserError(
            f"--vocab-size {config.vocab_size} is too small: {BYTES} bytes and {len(config.special)} special tokens "
            f"need at least {least}"
        )


def _byte_level() -> Any:
    """GPT-2's pre-tokenizer (Radford et al. 2019): words, numbers, punctuation, blanks; then bytes as characters."""
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def build(config: TrainerConfig) -> tuple[Tokenizer, Any]:
    """The untrained tokenizer and its trainer. All 256 bytes are in the vocabulary, so every text round-trips."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    common: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "special_tokens": list(config.special),
        "initial_alphabet": sorted(pre_tokenizers.ByteLevel.alphabet()),
        "show_progress": False,
    }
    if config.kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        trainer: Any = trainers.BpeTrainer(min_frequency=config.min_frequency, **common)
    else:
        tokenizer = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(unk_token=None, **common)
    tokenizer.pre_tokenizer = _byte_level()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, trainer


def pieces(texts: Iterable[list[str]], special: tuple[str, ...]) -> Iterator[list[str]]:
    """Texts cut for training: at special tokens (not learned from), in long runs, and at a line end where long."""
    split = re.compile("|".join(map(re.escape, special)))
    for batch in texts:
        yield [piece for text in batch for part in split.split(text) for piece in _cut(part)]


def _cut(text: str) -> Iterator[str]:
    start = 0
    for run in LONG_RUN.finditer(text):
        yield from _cut_lines(text[start : run.end()])
        start = run.end()
    yield from _cut_lines(text[start:])


def _cut_lines(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = text.rfind("\n", start, start + PIECE_CHARS) + 1 or start + PIECE_CHARS
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def mark_domain_tokens(tokenizer: Tokenizer, eos: str) -> Tokenizer:
    """The trainer marks every token it is given as special; only control tokens are (see is_control)."""
    from tokenizers import Tokenizer

    values = json.loads(tokenizer.to_str())
    for token in values["added_tokens"]:
        token["special"] = is_control(token["content"], eos)
    return Tokenizer.from_str(json.dumps(values))


def train(documents: Documents, config: TrainerConfig, output: Path) -> SavedTokenizer:
    """Train and save. Raises UserError if the vocabulary is too small or the output exists.

    BPE is a function of sample, seed and version of `tokenizers`, byte for byte: ties between pairs are broken by id.
    Unigram is not: tokenizers 0.23 goes through words in hash order, so scores (differences of 0.008 were measured)
    and possibly pieces change from run to run, on one thread too; training.json says `reproducible: false`.
    """
    check_vocab_size(config)
    refuse_existing(output)
    if not documents.text_bytes:
        raise UserError(f"{documents.folder}: the documents hold no text to train on")
    tokenizer, trainer = build(config)
    used = [0]

    def counted() -> Iterator[list[str]]:
        for texts in sample(documents, config.seed, config.sample_bytes):
            used[0] += sum(len(text.encode()) for text in texts)
            yield texts

    tokenizer.train_from_iterator(pieces(counted(), config.special), trainer)
    wrong = [name for place, name in enumerate(config.special) if tokenizer.token_to_id(name) != place]
    if wrong:
        raise AssertionError(f"special tokens did not get the first ids: {wrong}")
    tokenizer = mark_domain_tokens(tokenizer, config.eos)
    return save_tokenizer(output, tokenizer, config.eos, _training(tokenizer, documents, config, used[0]))


def _training(tokenizer: Tokenizer, documents: Documents, config: TrainerConfig, used: int) -> dict[str, Any]:
    """How the tokenizer came to be; no clock and no host, so that equal runs write equal files."""
    return {
        **asdict(config),
        "reached_vocab_size": tokenizer.get_vocab_size(with_added_tokens=True),
        "sampled_text_bytes": used,
        "reproducible": config.kind == "bpe",
        "documents_fingerprint": documents.manifest.fingerprint,
        "fingerprint": fingerprint_text(tokenizer.to_str(pretty=True) + "\n"),
        "versions": {"tokenizers": version("tokenizers")},
    }
