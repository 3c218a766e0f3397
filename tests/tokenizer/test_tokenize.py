"""Document shards to token shards: same bytes for any number of workers and any interruption; nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
import xxhash
from pyarrow import ipc

from schemas.arrow import token_shard
from schemas.errors import UserError
from schemas.manifest import TokenManifest, read_manifest
from tests.tokenizer.corpus import synthetic, write_documents
from tokenizer import shards
from tokenizer import tokenize as module
from tokenizer.documents import Documents, open_documents
from tokenizer.encode import HFEncoder
from tokenizer.saved import SavedTokenizer, read_tokenizer
from tokenizer.tokenize import TokenizePlan, make_plan, tokenize


def contents(folder: Path) -> dict[str, bytes]:
    """Published files by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def read(path: Path) -> pa.Table:
    with ipc.open_file(path) as reader:
        return reader.read_all()


@pytest.fixture(scope="module")
def output(docs: Documents, saved: SavedTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("tokens") / "tokens"
    tokenize(make_plan(docs, saved, target), workers=1)
    return target


def test_rows_are_documents_with_an_end(output: Path, docs: Documents, saved: SavedTokenizer) -> None:
    manifest = read_manifest(TokenManifest, output)
    reference = saved.load()
    for entry, source in zip(manifest.shards, docs.manifest.shards, strict=True):
        tokens, text = read(output / entry.path), read(docs.path(source))
        assert tokens.schema == token_shard("uint16")
        assert tokens.column("doc_id").equals(text.column("doc_id"))
        assert tokens.column("source").equals(text.column("source"))
        for row, document in zip(tokens.column("tokens").to_pylist(), text.column("text").to_pylist(), strict=True):
            assert row == [*reference.encode(document, add_special_tokens=False).ids, saved.ref.eos_id]


def test_counts_close(output: Path, docs: Documents, saved: SavedTokenizer) -> None:
    manifest = read_manifest(TokenManifest, output)
    assert manifest.tokenizer == saved.ref
    assert manifest.dtype == "uint16"
    assert manifest.documents == docs.rows == sum(entry.rows for entry in manifest.shards)
    assert manifest.tokens == sum(entry.tokens for entry in manifest.shards)
    for entry, source in zip(manifest.shards, docs.manifest.shards, strict=True):
        data = (output / entry.path).read_bytes()
        table = read(output / entry.path)
        ids = table.column("tokens").combine_chunks().values.to_numpy()
        assert (entry.bytes, entry.text_bytes) == (len(data), source.text_bytes)
        assert entry.checksum == xxhash.xxh3_128_hexdigest(data)
        assert entry.tokens == len(ids)
        assert (ids == saved.ref.eos_id).sum() == entry.rows == sum(entry.sources.values())


def test_two_workers_write_the_same_bytes(output: Path, docs: Documents, saved: SavedTokenizer, tmp_path: Path) -> None:
    tokenize(make_plan(docs, saved, tmp_path / "t"), workers=2)
    assert contents(tmp_path / "t") == contents(output)


def test_both_encoders_write_the_same_bytes(
    output: Path, docs: Documents, saved: SavedTokenizer, tmp_path: Path
) -> None:
    plan = make_plan(docs, saved, tmp_path)
    for unit in plan.units:
        unit.ledger.parent.mkdir(exist_ok=True)
        shards.encode_shard(unit, HFEncoder(saved), saved)
        assert unit.target.read_bytes() == (output / unit.target.name).read_bytes()


def test_batches_are_bounded(
    output: Path, docs: Documents, saved: SavedTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "BATCH_ROWS", 7)
    plan = make_plan(docs, saved, tmp_path)
    plan.units[0].ledger.parent.mkdir()
    shards.encode_shard(plan.units[0], HFEncoder(saved), saved)
    with ipc.open_file(plan.units[0].target) as reader:
        assert max(reader.get_batch(i).num_rows for i in range(reader.num_record_batches)) == 7
        assert reader.read_all().equals(read(output / plan.units[0].target.name))


def test_wide_ids(docs: Documents, saved: SavedTokenizer, tmp_path: Path) -> None:
    wide = replace(saved, ref=saved.ref.model_copy(update={"vocab_size": 70_000}))
    manifest = tokenize(make_plan(docs, wide, tmp_path), workers=1)
    assert manifest.dtype == "uint32"
    assert read(tmp_path / "shard-00000.arrow").schema == token_shard("uint32")


def test_finished_run_does_nothing(output: Path, docs: Documents, saved: SavedTokenizer) -> None:
    before = {path: path.stat().st_mtime_ns for path in output.glob("*.arrow")}
    plan = make_plan(docs, saved, output)
    assert not plan.pending
    tokenize(plan)
    assert before == {path: path.stat().st_mtime_ns for path in output.glob("*.arrow")}


def test_other_run_in_the_folder_is_refused(
    output: Path, docs: Documents, saved: SavedTokenizer, tmp_path: Path
) -> None:
    copy = tmp_path / "t"
    shutil.copytree(output, copy)
    other = replace(saved, ref=saved.ref.model_copy(update={"eos_id": 1, "eos_token": "<|pad|>"}))
    with pytest.raises(UserError, match=r"another run.*--restart"):
        make_plan(docs, other, copy)
    manifest = tokenize(make_plan(docs, other, copy, restart=True), workers=1, restart=True)
    assert manifest.tokenizer.eos_id == 1


def test_foreign_files_are_never_discarded(docs: Documents, saved: SavedTokenizer, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for target in (tmp_path, docs.folder):
        for restart in (False, True):
            with pytest.raises(UserError, match="no token run wrote"):
                make_plan(docs, saved, target, restart)


def damaged(folder: Path, target: Path) -> Documents:
    shutil.copytree(folder, target)
    path = target / "shards" / "shard-00001.arrow"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return open_documents(target)


def test_flipped_byte_is_refused(folder: Path, saved: SavedTokenizer, tmp_path: Path) -> None:
    docs = damaged(folder, tmp_path / "d")
    plan = make_plan(docs, saved, tmp_path / "t")
    plan.output.mkdir()
    (plan.output / ".ledger").mkdir()
    with pytest.raises(UserError, match=r"shard-00001\.arrow: damaged: checksum"):
        shards.encode_shard(plan.units[1], HFEncoder(saved), saved)
    with pytest.raises(UserError, match=r"shard-00001\.arrow"):
        tokenize(plan, workers=2)
    assert not (plan.output / "manifest.json").exists()
    assert not [name for name in contents(plan.output) if name.startswith(".")]


def test_missing_documents_are_noticed(docs: Documents, saved: SavedTokenizer, tmp_path: Path) -> None:
    plan = make_plan(docs, saved, tmp_path)
    unit = replace(plan.units[0], entry=plan.units[0].entry.model_copy(update={"rows": 121}))
    unit.ledger.parent.mkdir()
    with pytest.raises(UserError, match="holds 120 documents, but its manifest says 121"):
        shards.encode_shard(unit, HFEncoder(saved), saved)
    assert not unit.target.exists()


def test_end_token_spelled_by_text_is_refused(docs: Documents, saved: SavedTokenizer, tmp_path: Path) -> None:
    letter = saved.load().token_to_id("e")
    wrong = replace(saved, ref=saved.ref.model_copy(update={"eos_id": letter, "eos_token": "e"}))
    with pytest.raises(UserError, match=r"shard-.*spells its end token 'e' in ordinary text"):
        tokenize(make_plan(docs, wrong, tmp_path), workers=1)


def test_full_disk_is_foreseen(
    docs: Documents, saved: SavedTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="are needed"):
        tokenize(make_plan(docs, saved, tmp_path), workers=1)


def test_fallback_is_announced(
    docs: Documents, unigram_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = read_tokenizer(unigram_folder)
    manifest = tokenize(make_plan(docs, saved, tmp_path), workers=1)
    assert manifest.documents == docs.rows
    assert "warning: gigatoken cannot encode with this tokenizer (Unsupported model type" in capsys.readouterr().err


def test_space_is_told_in_sensible_units() -> None:
    assert [module.size(count) for count in (1, 999, 1000, 54_321, 2.5e8, 999_960, 3e10, 2e12)] == [
        "1 B", "999 B", "1.0 kB", "54.3 kB", "250 MB", "1.0 MB", "30.0 GB", "2.0 TB",
    ]  # fmt: skip


@pytest.mark.parametrize("harm", ["missing", "cut", "flipped"])
def test_finished_shard_that_was_harmed_is_made_again(
    output: Path, docs: Documents, saved: SavedTokenizer, tmp_path: Path, harm: str
) -> None:
    target = tmp_path / "t"
    shutil.copytree(output, target)
    shard, data = target / "shard-00001.arrow", (output / "shard-00001.arrow").read_bytes()
    if harm == "missing":
        shard.unlink()
    else:
        shard.write_bytes(data[:-9] if harm == "cut" else data[:700] + bytes([data[700] ^ 1]) + data[701:])
    plan = make_plan(docs, saved, target)
    assert sorted(plan.done) == [0, 2]
    tokenize(plan, workers=1)
    assert contents(target) == contents(output)


# Killing: shards large enough, and the slower encoder, so that there is a middle.


@pytest.fixture(scope="module")
def slow_plan(unigram_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenizePlan:
    texts = [synthetic(400, seed=number, words=400) for number in range(6)]
    folder = write_documents(tmp_path_factory.mktemp("slow") / "d", texts)
    return make_plan(open_documents(folder), read_tokenizer(unigram_folder), folder / "tokens")


def workers_of(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children() if "spawn_main" in " ".join(child.cmdline())]


def until(condition: object, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def command(plan: TokenizePlan, tokenizer: Path, output: Path) -> list[str]:
    shards = str(plan.documents.folder)
    options = ["--tokenizer", str(tokenizer), "--output", str(output), "--workers", "1"]
    return [sys.executable, "-m", "pipeline.cli", "tokenize", shards, *options]


@pytest.fixture
def killed_run(slow_plan: TokenizePlan, unigram_folder: Path, tmp_path: Path, root: Path) -> Iterator[Path]:
    """The output folder of a run whose main process got SIGKILL after its first finished shard."""
    output = tmp_path / "killed"
    process = subprocess.Popen(command(slow_plan, unigram_folder, output), cwd=root, stderr=subprocess.DEVNULL)
    until(lambda: list(output.glob(".ledger/shard-*.json")))
    orphans = workers_of(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert orphans
    until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in orphans), 10)
    yield output


@pytest.mark.slow
def test_killed_run_resumes_to_the_same_bytes(
    killed_run: Path, slow_plan: TokenizePlan, unigram_folder: Path, tmp_path: Path
) -> None:
    assert not (killed_run / "manifest.json").exists()
    plan = make_plan(slow_plan.documents, slow_plan.saved, killed_run)
    assert 0 < len(plan.done) < len(plan.units)
    kept = {n: plan.units[n].target.stat().st_mtime_ns for n in plan.done}
    tokenize(plan, workers=2)
    assert kept == {n: plan.units[n].target.stat().st_mtime_ns for n in plan.done}
    tokenize(make_plan(slow_plan.documents, slow_plan.saved, tmp_path / "whole"), workers=2)
    assert contents(killed_run) == contents(tmp_path / "whole")


@pytest.mark.slow
def test_killed_worker_is_reported(slow_plan: TokenizePlan, tmp_path: Path) -> None:
    plan = make_plan(slow_plan.documents, slow_plan.saved, tmp_path / "t")

    def kill() -> None:
        until(lambda: list(plan.output.glob(".ledger/shard-*.json")))
        workers_of(os.getpid())[0].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(UserError, match="a worker process died"):
        tokenize(plan, workers=2)
    killer.join()
    assert not (plan.output / "manifest.json").exists()
    assert json.loads((plan.output / ".ledger" / "run.json").read_text())["fingerprint"] == plan.run_fingerprint
