"""The demo corpus: real documents from this machine, the same bytes each time, never half of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from pipeline import demo_corpus
from pipeline.demo_corpus import build_demo_corpus
from schemas.errors import UserError


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_small_corpus(tmp_path: Path) -> None:
    summary = build_demo_corpus(tmp_path / "one", limit=50)
    assert summary.documents["code"] == 20 and summary.documents["docs"] == 20 and summary.documents["web"] >= 3
    files = contents(tmp_path / "one")
    notes = [json.loads(line) for line in gzip.decompress(files["docs/docs-000.jsonl.gz"]).splitlines()]
    assert len(notes) == 20 and all(set(note) == {"text", "package", "version", "kind"} for note in notes)
    assert str(tmp_path) not in str(files)

    assert build_demo_corpus(tmp_path / "one", limit=50).reused
    build_demo_corpus(tmp_path / "two", limit=50)
    assert contents(tmp_path / "two") == files
    assert not build_demo_corpus(tmp_path / "two", limit=5, force=True).reused
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    for force in (False, True):
        with pytest.raises(UserError, match="no demo corpus"):
            build_demo_corpus(tmp_path, force=force)
    assert (tmp_path / "mine.txt").exists()


def test_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_corpus, "_write_pages", fail)
    with pytest.raises(KeyboardInterrupt):
        build_demo_corpus(tmp_path / "one", limit=5)
    assert list(tmp_path.iterdir()) == []
