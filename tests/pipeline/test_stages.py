"""The clean job as a whole: counts close, removals are justified, the same bytes everywhere, nothing done twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc

from pipeline.dedup.shingles import measure, write_shingles
from pipeline.plan import make_plan
from pipeline.stages import clean
from pipeline.storage import Storage
from schemas.arrow import DECISION, DOCUMENT, DROP_REASONS, QUARANTINE_REASONS
from schemas.config import load_model
from schemas.errors import UserError
from schemas.manifest import DocumentManifest, read_manifest
from schemas.recipe import Recipe
from tests.pipeline.corpus import shard_bytes, write_recipe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def prep(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipeline.cli", *arguments], capture_output=True, text=True, timeout=600, **options
    )


def read_all(folder: Path) -> pa.Table:
    tables = [ipc.open_file(pa.memory_map(str(path))).read_all() for path in sorted(folder.glob("*.arrow"))]
    return pa.concat_tables(tables)


def test_counts_close_and_reasons_are_known(corpus: dict[str, Any], finished: tuple[Path, DocumentManifest]) -> None:
    _, manifest = finished
    counts = manifest.counts
    assert counts.seen == corpus["seen"] and counts.closes()
    assert counts.seen == counts.kept + sum(counts.dropped.values()) + sum(counts.quarantined.values())
    assert all(reason in DROP_REASONS or reason.startswith("gopher_") for reason in counts.dropped)
    assert set(counts.quarantined) <= set(QUARANTINE_REASONS)
    for reason in (
        "null_text",
        "missing_text",
        "invalid_json",
        "text_not_string",
        "lone_surrogate",
        "not_an_object",
        "empty_text",
    ):
        assert counts.quarantined[reason] == 1
    for reason in ("exact_duplicate", "near_duplicate", "sampled_out", "gopher_short_doc"):
        assert counts.dropped[reason] > 0, reason


def test_shards_hold_what_the_manifest_says(finished: tuple[Path, DocumentManifest]) -> None:
    output, manifest = finished
    assert len(manifest.shards) > 2
    assert read_manifest(DocumentManifest, output / "shards") == manifest
    for entry in manifest.shards:
        table = ipc.open_file(pa.memory_map(str(output / "shards" / entry.path))).read_all()
        assert table.schema == DOCUMENT
        assert table.num_rows == entry.rows and (output / "shards" / entry.path).stat().st_size == entry.bytes
    rows = read_all(output / "shards")
    assert rows.num_rows == manifest.counts.kept
    assert len(set(rows.column("doc_id").to_pylist())) == rows.num_rows
    assert rows.column("source").to_pylist() != sorted(rows.column("source").to_pylist())  # shuffled
    assert "http://x/" in rows.filter(pa.compute.equal(rows.column("source"), "web")).column("meta")[0].as_py()


def test_decisions_explain_every_document(finished: tuple[Path, DocumentManifest]) -> None:
    output, manifest = finished
    decisions = read_all(output / "decisions")
    assert decisions.schema == DECISION
    rows = decisions.to_pylist()
    kept = {row["doc_id"] for row in rows if row["kept"]}
    assert len(kept) == manifest.counts.kept
    by_id = {row["doc_id"]: row for row in rows}
    for row in rows:
        assert row["kept"] == (row["reason"] is None)
        if row["reason"] in ("exact_duplicate", "near_duplicate"):
            partner = by_id[row["kept_doc_id"]]
            assert partner["kept"] or partner["reason"] == "sampled_out"
            assert row["value"] >= 0.8


def test_no_removal_below_the_threshold_and_no_pair_above_it_left(
    finished: tuple[Path, DocumentManifest], tmp_path: Path
) -> None:
    """Brute force over all pairs of one source, on exact shingle sets."""
    output, _ = finished
    decisions = read_all(output / "decisions")
    keys = decisions.column("key").to_numpy()
    work = Storage.at(str(tmp_path))
    os.symlink(output / "parts", tmp_path / "parts")
    for part in np.unique(keys >> 32):
        write_shingles(work, int(part), keys[keys >> 32 == part] & 0xFFFFFFFF, 5)
    rows = decisions.to_pylist()
    by_id = {row["doc_id"]: row["key"] for row in rows}
    near = [row for row in rows if row["reason"] == "near_duplicate"]
    left, right = np.array([row["key"] for row in near]), np.array([by_id[row["kept_doc_id"]] for row in near])
    exact = measure(work, left, right)
    assert (exact >= 0.8).all() and np.allclose(exact, [row["value"] for row in near], rtol=0, atol=0)
    judged = [row["key"] for row in rows if row["kept"] or row["reason"] == "sampled_out"]
    grid = np.array([(a, b) for i, a in enumerate(judged) for b in judged[:i]])
    missed = int((measure(work, grid[:, 0], grid[:, 1]) >= 0.8).sum())
    assert missed <= 0.05 * len(near), f"{missed} pairs missed, {len(near)} removed"


def test_a_finished_run_is_not_repeated(
    corpus: dict[str, Any], finished: tuple[Path, DocumentManifest], spark: SparkSession
) -> None:
    output, manifest = finished
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()}
    plan = make_plan(load_model(Recipe, corpus["folder"] / "recipe.yaml"))
    assert clean(plan, spark, Storage.at(str(output))) == manifest
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()} == before


def test_the_folder_of_another_run_is_refused(
    corpus: dict[str, Any], finished: tuple[Path, DocumentManifest], spark: SparkSession
) -> None:
    output, _ = finished
    plan = make_plan(load_model(Recipe, corpus["folder"] / "recipe.yaml", ["seed=4"]))
    with pytest.raises(UserError, match="--restart"):
        clean(plan, spark, Storage.at(str(output)))


def test_one_core_gives_the_same_bytes(
    corpus: dict[str, Any], finished: tuple[Path, DocumentManifest], tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path / "recipe.yaml", corpus["sources"], tmp_path / "out")
    result = prep("clean", str(recipe), "--master", "local[1]", "--memory", "1g")
    assert result.returncode == 0, result.stderr
    assert "= kept + dropped + quarantined" in result.stdout
    assert shard_bytes(tmp_path / "out") == shard_bytes(finished[0])


def test_a_run_killed_in_the_text_pass_ends_with_the_same_bytes(
    corpus: dict[str, Any], finished: tuple[Path, DocumentManifest], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    recipe = write_recipe(tmp_path / "recipe.yaml", corpus["sources"], output)
    tasks = len(make_plan(load_model(Recipe, recipe)).tasks)
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline.cli", "clean", str(recipe), "--master", "local[1]", "--memory", "1g"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 180
    while len(list((output / "ledger").glob("0*.json"))) < 2:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = sorted(path.name for path in (output / "ledger").glob("0*.json"))
    assert 2 <= len(done) < tasks, "the run was not killed in the middle of the text pass"
    assert not (output / "shards").exists()
    written = {name: (output / "ledger" / name).stat().st_mtime_ns for name in done}
    result = prep("clean", str(recipe), "--master", "local[2]", "--memory", "1g")
    assert result.returncode == 0, result.stderr
    assert {name: (output / "ledger" / name).stat().st_mtime_ns for name in done} == written  # not read again
    assert shard_bytes(output) == shard_bytes(finished[0])


def test_too_much_quarantine_ends_the_run_with_a_remedy(
    corpus: dict[str, Any], spark: SparkSession, tmp_path: Path
) -> None:
    recipe = write_recipe(
        tmp_path / "r.yaml", corpus["sources"][:1], tmp_path / "out", quarantine={"max_fraction": 0.01}
    )
    with pytest.raises(UserError, match=r"more than quarantine.max_fraction = 1.0% .*prep quarantine"):
        clean(make_plan(load_model(Recipe, recipe)), spark, Storage.at(str(tmp_path / "out")))
    listing = prep("quarantine", str(tmp_path / "out"))
    assert listing.returncode == 0 and "lone_surrogate" in listing.stdout


def test_malformed_files_are_set_aside_and_counted(real_data: Path, spark: SparkSession, tmp_path: Path) -> None:
    sources = [
        {
            "name": "bad",
            "paths": [str(real_data / "malformed" / "*.jsonl*"), str(real_data / "malformed" / "pq_*.parquet")],
        }
    ]
    recipe = write_recipe(
        tmp_path / "r.yaml", sources, tmp_path / "out", quarantine={"max_fraction": 1.0}, rules=[],
        tasks={"target_bytes": 1 << 20, "max_document_bytes": 64 << 20},
    )  # fmt: skip
    (sources[0]["paths"]).remove(str(real_data / "malformed" / "pq_*.parquet"))
    manifest = clean(make_plan(load_model(Recipe, recipe)), spark, Storage.at(str(tmp_path / "out")))
    assert manifest.counts.closes() and manifest.counts.kept > 150
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["files_quarantined"]["truncated_stream"] >= 2


@pytest.mark.parametrize("exact", [True, False])
def test_deduplication_can_be_switched_off(
    corpus: dict[str, Any], spark: SparkSession, tmp_path: Path, exact: bool
) -> None:
    off = {"near_dup": {"enabled": False}, "exact_dup": {"enabled": exact}, "shards": {"compression": "none"}}
    recipe = write_recipe(tmp_path / "r.yaml", corpus["sources"][1:2], tmp_path / "out", **off)
    manifest = clean(make_plan(load_model(Recipe, recipe)), spark, Storage.at(str(tmp_path / "out")))
    assert manifest.counts.closes() and "near_duplicate" not in manifest.counts.dropped
    assert manifest.counts.dropped.get("exact_duplicate", 0) == (1 if exact else 0)


def test_what_killed_writers_left_is_swept(finished: tuple[Path, DocumentManifest], tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / ".000000.arrow.1a2b").write_bytes(b"half")
    (tmp_path / "parts" / "000000.arrow").write_bytes(b"whole")
    storage.sweep("parts")
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["000000.arrow"]
    storage.sweep("nothing-here")
    assert not list(finished[0].rglob(".*"))
