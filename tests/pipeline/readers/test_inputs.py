"""Listing and splitting: the same files and tasks wherever the corpus lies, and clear refusals."""

from __future__ import annotations

import json
import pickle
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.inputs import list_inputs, split_tasks
from pipeline.readers.contract import InputSource, ReadTask
from schemas.errors import UserError
from tests.pipeline.readers.reading import write


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name in ("b/x.jsonl", "a/y.jsonl.gz", "a/deep/z.parquet", "a/.hidden/w.jsonl", "a/_SUCCESS", "a/.k.jsonl"):
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 100)
    return tmp_path / "corpus"


def names(*paths: object, **fields: str) -> list[str]:
    return [file.name for file in list_inputs(InputSource("s", tuple(map(str, paths)), **fields))]


def test_folders_globs_and_files(corpus: Path) -> None:
    everything = ["a/deep/z.parquet", "a/y.jsonl.gz", "b/x.jsonl"]
    assert names(corpus) == everything
    assert names(corpus / "**") == everything
    assert names(corpus / "**" / "*.jsonl*") == everything[1:]
    assert names(corpus / "*" / "*.jsonl") == ["b/x.jsonl"]
    assert names(corpus / "b" / "[xy].json?") == ["x.jsonl"]
    assert names(corpus / "b", corpus / "a", corpus / "**" / "x.jsonl") == everything
    assert names(f"file://{corpus}/**") == everything
    assert names(f"file://{corpus}", corpus) == everything


def test_names_survive_a_move(corpus: Path, tmp_path: Path) -> None:
    before = names(corpus / "a", corpus / "b" / "*.jsonl")
    shutil.move(corpus, tmp_path / "elsewhere")
    assert names(tmp_path / "elsewhere" / "a", tmp_path / "elsewhere" / "b" / "*.jsonl") == before


def test_literal_names_with_wildcards(tmp_path: Path) -> None:
    write(tmp_path / "a[1].jsonl", b"x")
    assert names(tmp_path / "a[1].jsonl") == ["a[1].jsonl"]


def test_formats_and_compression(corpus: Path) -> None:
    found = {f.name: (f.format, f.compression, f.size) for f in list_inputs(InputSource("s", (str(corpus),)))}
    assert found["a/y.jsonl.gz"] == ("jsonl", "gzip", 100) and found["a/deep/z.parquet"] == ("parquet", None, 100)


def test_refusals(corpus: Path) -> None:
    with pytest.raises(UserError, match=r"source 's'.*nothing.*matches no file"):
        names(corpus / "nothing*.jsonl")
    (corpus / "b" / "data.bin").write_bytes(b"x")
    with pytest.raises(UserError, match=r"data\.bin.*set format:"):
        names(corpus)
    assert len(names(corpus / "b", format="jsonl")) == 2
    with pytest.raises(UserError, match="unknown format 'csv'"):
        names(corpus / "b", format="csv")
    (corpus / "b" / "z.parquet.gz").write_bytes(b"x")
    with pytest.raises(UserError, match="decompress"):
        names(corpus / "b" / "*.parquet.gz")


def test_tasks_cover_everything_once(tmp_path: Path) -> None:
    for k, size in enumerate((10, 2500, 30, 40, 999)):
        write(tmp_path / f"{k}.jsonl", b"x" * size)
    source = InputSource("s", (str(tmp_path),))
    files = list_inputs(source)
    tasks = split_tasks(source, files, 1000)
    assert tasks == split_tasks(source, files, 1000)
    for file in files:
        pieces = [p for task in tasks for p in task.slices if p.file == file]
        edges = [(p.start, file.size if p.end is None else p.end) for p in pieces]
        assert edges[0][0] == 0 and edges[-1][1] == file.size
        assert all(a[1] == b[0] for a, b in pairwise(edges))
    assert len(tasks) < len([p for task in tasks for p in task.slices])
    for task in tasks:
        assert ReadTask.from_dict(json.loads(json.dumps(task.to_dict()))) == task
        assert pickle.loads(pickle.dumps(task)) == task


def test_unreadable_footer_stays_whole(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", b"x" * 5000)
    source = InputSource("s", (str(tmp_path),))
    (task,) = split_tasks(source, list_inputs(source), 1000)
    assert [(p.start, p.end) for p in task.slices] == [(0, None)]
