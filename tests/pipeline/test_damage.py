"""Damage and misuse between two starts of one run: it ends with the same bytes, or is refused with a remedy."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.plan import make_plan
from pipeline.stages import begin, clean
from pipeline.storage import Storage
from schemas.config import load_model
from schemas.errors import UserError
from schemas.manifest import DocumentManifest
from schemas.recipe import Recipe
from tests.pipeline.corpus import shard_bytes, write_recipe
from tests.pipeline.test_stages import prep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def middle(run: Path) -> None:
    """As if the run had been killed in pass 2."""
    shutil.rmtree(run / "shards")
    (run / "report.json").unlink()


DAMAGE: dict[str, tuple[Callable[[Path], None], ...]] = {
    "a byte of a part": (middle, lambda run: flip(run / "parts" / "000003.arrow")),
    "a part is gone": (middle, lambda run: (run / "parts" / "000003.arrow").unlink()),
    "half a ledger": (middle, lambda run: cut(run / "ledger" / "000003.json")),
    "a byte of the decisions": (middle, lambda run: flip(run / "decisions" / "000002.arrow")),
    "decisions are gone": (middle, lambda run: (run / "decisions" / "000002.arrow").unlink()),
    "half a marker": (middle, lambda run: cut(run / "stages" / "decisions.json")),
    "a byte of the verdicts": (
        middle,
        lambda run: flip(run / "stages" / "near.arrow"),
        lambda run: (run / "stages" / "decisions.json").unlink(),
    ),
    "a shard is gone": (lambda run: (run / "shards" / "shard-00000.arrow").unlink(),),
    "a byte of a shard": (lambda run: flip(run / "shards" / "shard-00001.arrow"),),
    "half a manifest": (lambda run: cut(run / "shards" / "manifest.json"),),
    "the report is gone": (lambda run: (run / "report.json").unlink(),),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_made_again(
    corpus: dict[str, Any], finished: tuple[Path, DocumentManifest], spark: SparkSession, tmp_path: Path, damage: str
) -> None:
    run = tmp_path / "out"
    shutil.copytree(finished[0], run)
    for harm in DAMAGE[damage]:
        harm(run)
    recipe = write_recipe(tmp_path / "recipe.yaml", corpus["sources"], run)
    clean(make_plan(load_model(Recipe, recipe)), spark, Storage.at(str(run)))
    assert shard_bytes(run) == shard_bytes(finished[0])


def small(folder: Path, **changes: Any) -> Recipe:
    (folder / "in").mkdir(exist_ok=True)
    lines = [json.dumps({"text": " ".join(f"w{i + j}" for j in range(10 + i))}) for i in range(40)]
    if not (path := folder / "in" / "a.jsonl").exists():
        path.write_text("\n".join(lines) + "\n")
    sources = [{"name": "s", "paths": [str(folder / "in" / "*.jsonl")], "lang": "en"}]
    return load_model(Recipe, write_recipe(folder / "r.yaml", sources, folder / "out", **changes))


def test_input_that_changed_since_is_refused(tmp_path: Path) -> None:
    recipe = small(tmp_path)
    storage = Storage.at(recipe.output)
    assert begin(make_plan(recipe), storage) is None
    path = tmp_path / "in" / "a.jsonl"
    os.utime(path, ns=(1, 1))
    with pytest.raises(UserError, match=r"'a.jsonl' was modified since .*--restart"):
        begin(make_plan(recipe), storage)
    assert begin(make_plan(recipe), storage, restart=True) is None


@pytest.mark.parametrize("restart", [True, False])
def test_folders_of_unknown_origin_are_left_alone(tmp_path: Path, restart: bool) -> None:
    recipe = small(tmp_path)
    (tmp_path / "out" / "parts").mkdir(parents=True)
    (tmp_path / "out" / "parts" / "thesis.doc").write_text("mine")
    with pytest.raises(UserError, match="somebody else's"):
        begin(make_plan(recipe), Storage.at(recipe.output), restart)
    assert (tmp_path / "out" / "parts" / "thesis.doc").read_text() == "mine"


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    small(tmp_path)
    with Storage.at(str(tmp_path / "out")).lock():
        result = prep("clean", str(tmp_path / "r.yaml"))
    assert result.returncode == 2 and "another run is writing here" in result.stderr


@pytest.mark.parametrize("place", ["in/out", "file", "/proc/x"])
def test_an_output_that_cannot_be_is_refused_by_a_dry_run(tmp_path: Path, place: str) -> None:
    small(tmp_path)
    (tmp_path / "file").write_text("x")
    recipe = (tmp_path / "r.yaml").read_text().replace("/*.jsonl", "")
    (tmp_path / "r.yaml").write_text(recipe)
    result = prep("clean", str(tmp_path / "r.yaml"), "--dry-run", "--set", f"output={tmp_path / place}")
    assert result.returncode == 2 and "state another output" in result.stderr, result.stdout


def test_rules_may_share_a_reason(tmp_path: Path, spark: SparkSession) -> None:
    rules = [
        {"signal": "word_count", "drop_if": "< 15", "reason": "odd_size"},
        {"signal": "word_count", "drop_if": "> 45", "reason": "odd_size"},
    ]
    recipe = small(tmp_path, rules=rules, near_dup={"enabled": False})
    manifest = clean(make_plan(recipe), spark, Storage.at(recipe.output))
    assert manifest.counts.dropped == {"odd_size": 9} and manifest.counts.closes()


def test_files_that_are_lost_count_against_the_limit(tmp_path: Path, spark: SparkSession) -> None:
    recipe = small(tmp_path, rules=[])
    for i in range(30):
        (tmp_path / "in" / f"b{i}.parquet").write_bytes(b"PAR1" + os.urandom(2000))
    source = recipe.sources[0].model_copy(update={"paths": [str(tmp_path / "in")]})
    recipe = recipe.model_copy(update={"sources": [source]})
    with pytest.raises(UserError, match="30 of 70 records and files"):
        clean(make_plan(recipe), spark, Storage.at(recipe.output))


def test_a_raised_quarantine_limit_goes_on_and_another_setting_is_named(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path / "out"))
    assert begin(make_plan(small(tmp_path, quarantine={"max_fraction": 0.1})), storage) is None
    assert begin(make_plan(small(tmp_path, quarantine={"max_fraction": 0.9})), storage) is None
    with pytest.raises(UserError, match=r"near_dup.threshold was 0.8 and is 0.9.*--restart"):
        begin(make_plan(small(tmp_path, near_dup={"threshold": 0.9})), storage)
