"""Training: same input, same bytes; every text round-trips; special tokens come first and stay whole."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import UserError
from tests.tokenizer.conftest import SPECIAL, config
from tests.tokenizer.corpus import WORDS, synthetic, write_documents
from tokenizer.documents import Documents, open_documents, sample
from tokenizer.saved import SavedTokenizer, read_tokenizer, save_tokenizer
from tokenizer.trainers import LONG_RUN, pieces, resolve_special, train

CHARACTERS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
WORDY = st.lists(st.sampled_from([*WORDS, *SPECIAL, "  ", "\n"]), max_size=40).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(st.one_of(CHARACTERS, WORDY))
def test_bpe_round_trips_any_text(saved: SavedTokenizer, text: str) -> None:
    tokenizer = saved.load()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert saved.ref.eos_id not in ids


def test_unigram_round_trips(unigram_folder: Path) -> None:
    tokenizer = read_tokenizer(unigram_folder).load()
    for text in [*synthetic(20, seed=9), "", " ", "\x00\t😀 שלום\r\n", "[公司名] x", "<|endoftext|>"]:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("which", ["tokenizer_folder", "unigram_folder"])
def test_special_tokens_have_the_first_ids(which: str, request: pytest.FixtureRequest) -> None:
    tokenizer = read_tokenizer(request.getfixturevalue(which)).load()
    assert [tokenizer.id_to_token(i) for i in range(len(SPECIAL))] == list(SPECIAL)


def test_domain_tokens_are_never_split(saved: SavedTokenizer) -> None:
    tokenizer = saved.load()
    for text in ("[公司名]", "a[公司名]b", "与[公司名][公司名]签约", "x [公司名]\n"):
        assert tokenizer.encode(text, add_special_tokens=False).ids.count(2) == text.count("[公司名]")


def test_control_tokens_in_a_document_are_ordinary_text(saved: SavedTokenizer) -> None:
    ids = saved.load().encode("a<|endoftext|>b<|pad|>", add_special_tokens=False).ids
    assert not {0, 1} & set(ids)


def test_auto_tokenizer_gives_the_same_ids(tokenizer_folder: Path, saved: SavedTokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    loaded = transformers.AutoTokenizer.from_pretrained(str(tokenizer_folder), local_files_only=True)
    assert (loaded.eos_token, loaded.eos_token_id) == ("<|endoftext|>", 0)
    assert loaded.pad_token_id is not None
    assert loaded.model_max_length > 10**9
    own = saved.load()
    for text in [*synthetic(30, seed=5), "和[公司名]签约", " lead", "x  \n y"]:
        ids = loaded(text, add_special_tokens=False)["input_ids"]
        assert ids == own.encode(text, add_special_tokens=False).ids
        assert loaded.decode(ids) == text


TRAIN_AGAIN = """
import sys
from tests.tokenizer.conftest import config
from tokenizer.documents import open_documents
from tokenizer.trainers import train
from pathlib import Path
print(train(open_documents(sys.argv[1]), config(), Path(sys.argv[2])).ref.fingerprint)
"""


@pytest.mark.parametrize("setting", [{"RAYON_NUM_THREADS": "5"}, {"TOKENIZERS_PARALLELISM": "false"}])
def test_same_bytes_for_any_thread_count(
    setting: dict[str, str], folder: Path, tokenizer_folder: Path, tmp_path: Path, root: Path
) -> None:
    command = [sys.executable, "-c", TRAIN_AGAIN, str(folder), str(tmp_path / "again")]
    subprocess.run(command, cwd=root, env={**os.environ, **setting}, check=True, timeout=60)
    for name in ("tokenizer.json", "tokenizer_config.json", "training.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tokenizer_folder / name).read_bytes()


def test_ties_are_broken_the_same_way(tmp_path: Path) -> None:
    """Every pair is as frequent as every other: hash order must not decide."""
    texts = [f"{a}{b}" for a in "abcdefghijkl" for b in "mnopqrstuvwx"] * 3
    docs = open_documents(write_documents(tmp_path / "d", [texts]))
    made = [train(docs, config(vocab_size=340), tmp_path / str(i)).ref.fingerprint for i in range(4)]
    assert len(set(made)) == 1


def test_training_json_says_how(tokenizer_folder: Path, saved: SavedTokenizer, docs: Documents) -> None:
    values = json.loads((tokenizer_folder / "training.json").read_text())
    assert values["fingerprint"] == saved.ref.fingerprint
    assert values["documents_fingerprint"] == docs.manifest.fingerprint
    assert values["reached_vocab_size"] == saved.ref.vocab_size <= values["vocab_size"]
    assert values["sampled_text_bytes"] == docs.text_bytes


@pytest.mark.parametrize("budget", [1, 100, 5_000, 20_000, 10**9])
def test_sample_keeps_the_budget_and_repeats(docs: Documents, budget: int) -> None:
    first = list(sample(docs, 1, budget))
    size = sum(len(text.encode()) for texts in first for text in texts)
    assert size <= budget
    assert size >= min(budget, docs.text_bytes) * 0.8 - 200
    assert first == list(sample(docs, 1, budget))


def test_sample_depends_on_the_seed_and_reads_every_large_shard(docs: Documents) -> None:
    one, two = list(sample(docs, 1, 10_000)), list(sample(docs, 2, 10_000))
    assert one != two
    sizes = [shard.text_bytes for shard in docs.manifest.shards]
    assert len(one) >= sum(size * 10_000 // docs.text_bytes > 500 for size in sizes)


def test_pieces_keep_the_text_and_bound_the_runs() -> None:
    texts = ["a" * 1000, "line\n" * 30_000, "字" * 700 + " end", "<|endoftext|>x[公司名]y", ""]
    cut = [piece for batch in pieces([texts], SPECIAL) for piece in batch]
    assert "".join(cut) == "".join(texts).replace("<|endoftext|>", "").replace("[公司名]", "")
    assert max(map(len, cut)) <= 1 << 16
    assert not any(LONG_RUN.search(piece) for piece in cut)


def test_vocabulary_too_small_is_refused(docs: Documents, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least 259"):
        train(docs, config(vocab_size=258), tmp_path / "t")


def test_too_little_text_gives_a_smaller_vocabulary(tmp_path: Path) -> None:
    docs = open_documents(write_documents(tmp_path / "d", [["abc abc"]]))
    assert train(docs, config(vocab_size=5000), tmp_path / "t").ref.vocab_size == 261


def test_output_that_exists_is_refused(docs: Documents, tokenizer_folder: Path) -> None:
    with pytest.raises(UserError, match="exists already"):
        train(docs, config(), tokenizer_folder)


def test_special_token_rules() -> None:
    assert resolve_special(["[X]", "<|endoftext|>"], None) == (("[X]", "<|endoftext|>"), "<|endoftext|>")
    assert resolve_special(["[X]"], None) == (("<|endoftext|>", "[X]"), "<|endoftext|>")
    assert resolve_special(["[X]"], "</s>") == (("</s>", "[X]"), "</s>")
    with pytest.raises(UserError, match="twice"):
        resolve_special(["[X]", "[X]"], None)
    with pytest.raises(UserError, match="ordinary text can spell 'endoftext'"):
        resolve_special(["endoftext"], None)


@pytest.mark.parametrize(
    ("content", "message"), [(None, "no tokenizer.json"), ("{", "not a tokenizer.json"), ("\xff", "not a tokenizer")]
)
def test_unreadable_tokenizer(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=message):
        read_tokenizer(tmp_path)


def test_end_token_is_asked_for(tokenizer_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((tokenizer_folder / "tokenizer.json").read_bytes())
    with pytest.raises(UserError, match=r"--eos TOKEN; its control tokens: <\|endoftext\|>"):
        read_tokenizer(tmp_path)
    assert read_tokenizer(tmp_path, "<|pad|>").ref.eos_id == 1
    with pytest.raises(UserError, match="not in the vocabulary"):
        read_tokenizer(tmp_path, "<nope>")


def test_a_full_width_comma_is_no_separator() -> None:
    from tokenizer.trainers import resolve_special

    with pytest.raises(UserError, match="full-width comma"):
        resolve_special(["<|endoftext|>，[公司名]"], None)


@pytest.mark.parametrize("eos", [["<|endoftext|>"], 7, {"content": {}}, "", True])
def test_nonsense_for_an_end_token_is_named(tokenizer_folder: Path, tmp_path: Path, eos: object) -> None:
    (tmp_path / "tokenizer.json").write_bytes((tokenizer_folder / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos}))
    with pytest.raises(UserError, match=r"eos_token is .* give --eos"):
        read_tokenizer(tmp_path)
    assert read_tokenizer(tmp_path, "<|endoftext|>").ref.eos_id == 0


def test_full_disk_while_saving_a_tokenizer(
    saved: SavedTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match="disk full"):
        save_tokenizer(tmp_path / "tok", saved.load(), "<|endoftext|>", {})
    assert not list(tmp_path.iterdir())
