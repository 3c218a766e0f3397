"""The benchmarks' own parts: registry, inputs, arithmetic. Nothing is timed and no peer is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zstandard

from benchmarks import bench_clean, corpus, measure, run
from benchmarks.bench_clean import Series, assemble, marginal, table
from benchmarks.measure import Measured
from schemas.errors import UserError

TEXTS = {
    "en": [f"document {n} of plain words and 12 numbers\n" * 3 for n in range(20)],
    "zh": ["今天天气很好。" * 9] * 10,
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder as --data wants it."""
    (tmp_path / "corpus").mkdir()
    for name, texts in TEXTS.items():
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (tmp_path / f"corpus/{name}.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))
    return tmp_path


def series(mb: float, *seconds: float, cpu_s: float = 1.0) -> Series:
    """Made-up runs."""
    runs = tuple(Measured(wall, cpu_s, 100.0, "", "") for wall in seconds)
    return Series("made up", mb, runs, {"seen": 10, "kept": 9}, {})


def test_registry_lists_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([]) == 0
    assert "clean " in capsys.readouterr().out
    assert "clean" in run.names()


def test_unknown_name_is_refused_with_the_known_ones(root: Path) -> None:
    command = [sys.executable, "benchmarks/run.py", "nothing"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 2
    assert "'nothing'" in done.stderr and "clean" in done.stderr


def test_missing_peers_are_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(measure.PEERS_VARIABLE, str(tmp_path / "none"))
    assert run.main(["clean"]) == 2
    assert "run make peers" in capsys.readouterr().err


def test_assembled_line() -> None:
    ours = {"same": series(40.0, 10.0, 8.0, cpu_s=10.0), "full": series(200.0, 16.0)}
    peer = {"small": series(10.0, 30.0), "same": series(40.0, 100.0, cpu_s=150.0)}
    line = assemble(ours, peer, cores=2)
    assert json.loads(json.dumps(line)) == line
    assert line["bench"] == "clean"
    assert line["ours"] == 2.5 and line["peer"] == 0.2 and line["ratio"] == 12.5
    assert line["ours_marginal"] == 10.0 and line["peer_marginal"] == pytest.approx(0.214, abs=1e-3)
    assert line["ratio_marginal"] == pytest.approx(46.67)
    assert line["ratio_cpu"] == 15.0
    assert line["runs"]["ours"]["same"]["spread"] == 0.25
    assert len(table(ours, peer, 2)) == 5


def test_noise_that_hides_the_marginal_cost_gives_none() -> None:
    assert marginal(series(10.0, 5.0), series(20.0, 4.0), cores=1) is None
    same = {"same": series(10.0, 5.0), "full": series(20.0, 4.0), "small": series(1.0, 1.0)}
    assert assemble(same, same, cores=1)["ratio_marginal"] is None


def test_sample_takes_every_kth_document_of_each_file(data: Path, tmp_path: Path) -> None:
    files = corpus.corpus_files(str(data))
    made = corpus.write_input(tmp_path / "half", files, 0.5, parts=2)
    assert made.documents == 15
    assert made.mb == pytest.approx(corpus.corpus_mb(files) / 2, rel=0.1)
    sizes = [path.stat().st_size for path in sorted(made.folder.iterdir())]
    assert len(sizes) == 2 and max(sizes) < 1.2 * min(sizes)


def test_copies_keep_size_and_words_but_not_their_order(data: Path, tmp_path: Path) -> None:
    files = corpus.corpus_files(str(data), ["en"])
    made = corpus.write_input(tmp_path / "two", files, 2.0, parts=1)
    rows = [json.loads(line)["text"] for line in (made.folder / "000.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows[:20] == TEXTS["en"]
    assert [sorted(text) for text in rows[:20]] == [sorted(text) for text in rows[20:]]
    assert sum(first != copy for first, copy in zip(rows[:20], rows[20:], strict=True)) > 10
    assert made.mb == pytest.approx(2 * corpus.corpus_mb(files))
    assert corpus.altered("", 0.5, np.random.default_rng(0)) == ""


def test_corpus_mistakes_are_told(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(corpus.DATA_VARIABLE, raising=False)
    for folder, only, message in [
        (None, None, "--data"),
        (str(data), ["fr"], "en, zh"),
        (str(tmp_path / "x"), None, "no"),
    ]:
        with pytest.raises(UserError, match=message):
            corpus.corpus_files(folder, only)


def test_measured_counts_the_tree_and_reports_failures() -> None:
    done = measure.measured([sys.executable, "-c", "print('out')"])
    assert done.stdout == "out\n" and done.wall_s > 0 and done.peak_rss_mb > 0
    with pytest.raises(UserError, match=r"(?s)status 3.*the cause"):
        measure.measured([sys.executable, "-c", "import sys; print('the cause', file=sys.stderr); sys.exit(3)"])


def test_recipe_is_valid_and_keeps_what_is_sold() -> None:
    from schemas.recipe import Recipe

    recipe = Recipe.model_validate(bench_clean.recipe_of(Path("in"), Path("out")))
    assert recipe.exact_dup.enabled and recipe.near_dup.enabled and recipe.rules == ["gopher"]


def test_busy_machine_is_warned_about() -> None:
    assert measure.load_warning(0.9, 2) is None
    assert "1.10" in str(measure.load_warning(1.1, 2))
