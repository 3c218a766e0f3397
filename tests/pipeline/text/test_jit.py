"""Compiled kernels are found again: from a zip, from another zip of the same sources, without a writable home."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.bundle import write_bundle

PROBE = """
import sys
sys.path[:] = [p for p in sys.path if "site-packages" in p or "python3" in p]
sys.path.insert(0, sys.argv[1])
import pipeline
from pipeline.text import content, jit
from pipeline.text.buffers import text_of
assert ".zip" in pipeline.__file__, pipeline.__file__
print(content.content_hashes(text_of(["hello"])).tolist())
stats = content._murmur.stats
print("hits", sum(stats.cache_hits.values()), "misses", sum(stats.cache_misses.values()), jit.cache_root())
"""


def probe(bundle: Path, folder: Path, **environment: str) -> str:
    base = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CORPUSMILL_CACHE", "XDG_CACHE_HOME")}
    result = subprocess.run(
        [sys.executable, "-c", PROBE, str(bundle)],
        cwd=folder,
        env={**base, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_a_zip_elsewhere_finds_the_code_that_another_compiled(tmp_path: Path) -> None:
    first, second = tmp_path / "app-1" / "a.zip", tmp_path / "app-2" / "b.zip"
    write_bundle(first)
    second.parent.mkdir()
    shutil.copy(first, second)
    home = str(tmp_path / "home")
    cold = probe(first, tmp_path, HOME=home)
    warm = probe(second, tmp_path, HOME=home)
    assert "hits 0 misses 1" in cold
    assert "hits 1 misses 0" in warm
    assert home in warm


@pytest.mark.slow
def test_an_unwritable_home_falls_back_to_a_private_folder(tmp_path: Path) -> None:
    bundle = tmp_path / "a.zip"
    write_bundle(bundle)
    (tmp_path / "file").write_text("in the way")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    out = probe(bundle, tmp_path, HOME=str(tmp_path / "file" / "home"), TMPDIR=str(scratch))
    assert str(scratch) in out


def test_equal_sources_give_equal_bundles(tmp_path: Path) -> None:
    a, b = (Path(write_bundle(tmp_path / name)).read_bytes() for name in ("a.zip", "b.zip"))
    assert a == b
