"""MB/s per core of `prep clean` against datatrove: JSONL, Gopher quality rules, MinHash near-duplicates.

Ours removes exact duplicates too and verifies each near-duplicate on its shingles; datatrove's pipeline does neither.
Both run as commands, start-up included, on the same files. MB are 10^6 bytes of UTF-8 text.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.corpus import Input, corpus_files, corpus_mb, write_input
from benchmarks.measure import Measured, load_warning, machine, measured, peer_python, say
from schemas.errors import UserError

PEER_SCRIPT = Path(__file__).with_name("peer_datatrove.py")
STAGE_LINE = re.compile(r"^(\d .+): done in (.+)$", re.MULTILINE)
SMALL = 0.25


@dataclass(frozen=True)
class Series:
    """One program on one input, run one or more times."""

    program: str
    mb: float
    runs: tuple[Measured, ...]
    counts: dict[str, Any]
    stages: dict[str, Any]

    @property
    def best(self) -> Measured:
        return min(self.runs, key=lambda run: run.wall_s)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / fastest, of wall-clock time."""
        return max(run.wall_s for run in self.runs) / self.best.wall_s - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", help="folder with corpus/*.jsonl.zst; default: PREP_TEST_DATA")
    parser.add_argument("--only", nargs="+", metavar="FILE", help="names in corpus/ to use, e.g. en_novels")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="cores each side may use")
    parser.add_argument("--peer-mb", type=float, default=40.0, help="text that both sides process; the peer is slow")
    parser.add_argument("--copies", type=float, default=4.0, help="size of our largest run, in corpora")
    parser.add_argument("--repeats", type=int, default=2, help="runs of ours on each input")
    parser.add_argument("--peer-repeats", type=int, default=1, help="runs of the peer on each input")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, print a table, return the line of JSON."""
    python = peer_python()
    host = machine()
    warning = load_warning(host["load"], host["cores"])
    say(f"{host['cpu']}, {host['cores']} cores, load average {host['load']}" + (f"\n{warning}" if warning else ""))
    files = corpus_files(options.data, options.only)
    with tempfile.TemporaryDirectory(prefix="bench-clean-") as name:
        inputs = make_inputs(Path(name), files, options)
        ours = {key: our_series(inputs[key], options, Path(name)) for key in ("same", "full")}
        peer = {key: peer_series(inputs[key], options, Path(name), python) for key in ("small", "same")}
    result = assemble(ours, peer, options.cores)
    print("\n".join(table(ours, peer, options.cores)))
    sizes = {key: {file: round(mb, 2) for file, mb in item.mb_by_file.items()} for key, item in inputs.items()}
    return {**result, "input_mb": sizes, "machine": host, "busy": warning is not None}


def make_inputs(folder: Path, files: Sequence[Path], options: argparse.Namespace) -> dict[str, Input]:
    """`same`: what both process. `small`: a quarter of it. `full`: what only ours processes besides."""
    whole = corpus_mb(files)
    times = {"small": SMALL * options.peer_mb / whole, "same": options.peer_mb / whole, "full": options.copies}
    if times["full"] <= times["same"]:
        raise UserError(
            f"--copies {options.copies:g} x {whole:.1f} MB is not more than --peer-mb {options.peer_mb:g}: "
            "the marginal cost needs two sizes; raise --copies or lower --peer-mb"
        )
    inputs = {}
    for key, value in times.items():
        inputs[key] = write_input(folder / key, files, value, options.cores)
        say(f"input {key}: {inputs[key].documents} documents, {inputs[key].mb:.1f} MB")
    return inputs


def our_series(source: Input, options: argparse.Namespace, folder: Path) -> Series:
    """`prep clean` on `source`, with default settings and the Gopher rules."""
    prep = Path(sys.executable).with_name("prep")
    if not prep.is_file():
        raise UserError(
            f"{prep} is missing: run this with the interpreter of the project's environment, after make setup"
        )
    runs = []
    for number in range(options.repeats):
        with tempfile.TemporaryDirectory(dir=folder) as work:
            recipe = Path(work) / "recipe.yaml"
            recipe.write_text(yaml.safe_dump(recipe_of(source.folder, Path(work) / "out")), encoding="utf-8")
            runs.append(measured([prep, "clean", recipe, "--master", f"local[{options.cores}]"]))
            manifest = json.loads((Path(work) / "out/shards/manifest.json").read_text(encoding="utf-8"))
        say(f"prep clean, {source.mb:.1f} MB, run {number + 1}: {runs[-1].wall_s:.1f} s")
    counts = {key: manifest["counts"][key] for key in ("seen", "kept", "dropped")}
    best = min(runs, key=lambda one: one.wall_s)
    return Series("prep clean", source.mb, tuple(runs), counts, dict(STAGE_LINE.findall(best.stderr)))


def recipe_of(source: Path, output: Path) -> dict[str, Any]:
    """The recipe: one JSONL source, Gopher rules, exact and near-duplicates (on by default) spelled out."""
    return {
        "name": "bench",
        "output": str(output),
        "sources": [{"name": "corpus", "paths": [f"{source}/*.jsonl"]}],
        "rules": ["gopher"],
        "exact_dup": {"enabled": True},
        "near_dup": {"enabled": True},
    }


def peer_series(source: Input, options: argparse.Namespace, folder: Path, python: Path) -> Series:
    """datatrove on `source`: a task and a worker a core."""
    runs = []
    for number in range(options.peer_repeats):
        with tempfile.TemporaryDirectory(dir=folder) as work:
            runs.append(measured([python, PEER_SCRIPT, source.folder, work, "--cores", str(options.cores)]))
        say(f"datatrove, {source.mb:.1f} MB, run {number + 1}: {runs[-1].wall_s:.1f} s")
    best = min(runs, key=lambda one: one.wall_s)
    report = json.loads(best.stdout.splitlines()[-1])
    counts = {key: report[key] for key in ("seen", "passed_rules", "kept")}
    return Series(report["peer"], source.mb, tuple(runs), counts, report["stages"])


def assemble(ours: dict[str, Series], peer: dict[str, Series], cores: int) -> dict[str, Any]:
    """The line of JSON, from our runs on `same` and `full` and the peer's on `small` and `same`."""
    our_speed, peer_speed = speed(ours["same"], cores), speed(peer["same"], cores)
    our_margin = marginal(ours["same"], ours["full"], cores)
    peer_margin = marginal(peer["small"], peer["same"], cores)
    return {
        "bench": "clean",
        "unit": "MB/s per core",
        "ours": round(our_speed, 3),
        "peer": round(peer_speed, 3),
        "ratio": round(our_speed / peer_speed, 2),
        "ratio_marginal": round(our_margin / peer_margin, 2) if our_margin and peer_margin else None,
        "ratio_cpu": round(peer["same"].best.cpu_s / ours["same"].best.cpu_s, 2),
        "ours_marginal": _rounded(our_margin),
        "peer_marginal": _rounded(peer_margin),
        "ours_full": round(speed(ours["full"], cores), 3),
        "cores": cores,
        "peer_name": peer["same"].program,
        "ours_does": "gopher rules, language, exact duplicates, near-duplicates verified on shingles",
        "peer_does": "gopher rules as English, near-duplicates by MinHash alone",
        "runs": {
            "ours": {key: summary(series) for key, series in ours.items()},
            "peer": {key: summary(series) for key, series in peer.items()},
        },
    }


def speed(series: Series, cores: int) -> float:
    """MB/s per core of the fastest run, start-up included."""
    return series.mb / series.best.wall_s / cores


def marginal(small: Series, large: Series, cores: int) -> float | None:
    """MB/s per core of what the larger input adds, so without start-up; None if noise hides it."""
    seconds = large.best.wall_s - small.best.wall_s
    return (large.mb - small.mb) / seconds / cores if seconds > 0 else None


def summary(series: Series) -> dict[str, Any]:
    """Times, counts and memory of one program on one input."""
    return {
        "mb": round(series.mb, 2),
        "wall_s": [round(run.wall_s, 2) for run in series.runs],
        "spread": round(series.spread, 3),
        "cpu_s": round(series.best.cpu_s, 1),
        "peak_rss_mb": round(max(run.peak_rss_mb for run in series.runs)),
        "counts": series.counts,
        "stages": series.stages,
    }


def table(ours: dict[str, Series], peer: dict[str, Series], cores: int) -> list[str]:
    """Lines for people."""
    lines = [
        f"{'':24}{'MB':>8}{'best s':>9}{'spread':>8}{'MB/s/core':>11}{'CPU s':>8}{'RSS MB':>8}{'seen':>9}{'kept':>9}"
    ]
    for group in (ours, peer):
        for key, series in group.items():
            best, rate = series.best, speed(series, cores)
            lines.append(
                f"{series.program + ' ' + key:24}{series.mb:8.1f}{best.wall_s:9.1f}{series.spread:8.1%}{rate:11.3f}"
                f"{best.cpu_s:8.1f}{best.peak_rss_mb:8.0f}{series.counts['seen']:9}{series.counts['kept']:9}"
            )
    return lines


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
