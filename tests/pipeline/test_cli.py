"""`prep` from the outside: quick start, mistakes named before Spark starts, no stack trace for a user."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

HEAVY = ("pyspark", "torch", "numba", "pyarrow", "numpy", "pandas", "transformers")


def prep(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def recipe(tmp_path: Path, **changes: Any) -> str:
    (tmp_path / "in.jsonl").write_text('{"text": "hello"}\n')
    values = {
        "name": "r",
        "output": str(tmp_path / "out"),
        "sources": [{"name": "s", "paths": [str(tmp_path / "in.jsonl")]}],
        **changes,
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(values))
    return str(path)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["tokenizer", "--help"], ["clean", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    probe = (
        "import sys\nfrom pipeline.cli import main\n"
        f"sys.argv = ['prep', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        f"print('heavy:', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip().endswith("heavy: []")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": [{"name": "s", "paths": ["/no/such/file.jsonl"]}]}, "matches no file"),
        ({"rules": ["gofer"]}, "unknown rule set 'gofer'; did you mean 'gopher'?"),
        ({"sources": [{"name": "s", "paths": ["x"], "weight": -1}]}, "sources.0.weight"),
        ({"near_dup": {"bands": 14, "rows": 9}}, "set num_perm: 126 or rows: 8"),
        ({"near_dupe": {}}, "unknown key 'near_dupe'; did you mean 'near_dup'?"),
        ({"sources": []}, "sources"),
        ({"sources": [{"name": "a", "paths": ["x"]}, {"name": "a", "paths": ["y"]}]}, "two sources are named 'a'"),
        ({"seed": -1}, "seed"),
        ({"language": {"keep": ["zh-CN"]}}, "'zh-CN' is no language code that is known here; did you mean 'zh'?"),
        ({"language": {"enabled": False, "keep": ["zh"]}}, "need language identification"),
        ({"rules": [{"signal": "word_count", "drop_if": "< 1", "reason": "r", "languages": ["english"]}]}, "rule r"),
    ],
)
def test_a_mistake_in_the_recipe_is_named_before_spark_starts(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    result = prep("clean", recipe(tmp_path, **changes))
    assert result.returncode == 2
    assert result.stderr.startswith("error: ") and message in result.stderr
    assert "Traceback" not in result.stderr and "Spark" not in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not valid YAML"),
        ("- 1", "expected a mapping"),
        ("!!python/object/apply:os.system ['x']", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_recipe(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    result = prep("clean", str(path))
    assert result.returncode == 2 and message in result.stderr and "Traceback" not in result.stderr


def test_dry_run_shows_the_plan_and_writes_nothing(tmp_path: Path) -> None:
    result = prep("clean", recipe(tmp_path), "--dry-run", "--set", "seed=5")
    assert result.returncode == 0, result.stderr
    assert "nothing was run" in result.stdout and "gopher_short_doc" in result.stdout and "seed: 5" in result.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("which", ["recipe", "train"])
def test_schema_is_json_schema_with_every_field_described(which: str) -> None:
    schema = json.loads(prep("schema", which).stdout)
    for name, model in {"top": schema, **schema["$defs"]}.items():
        for key, field in model.get("properties", {}).items():
            assert "description" in field, f"{name}.{key}"
    assert prep("schema", "nothing").returncode == 2


def test_rules_and_signals_are_listed() -> None:
    rules, signals = prep("rules").stdout, prep("signals").stdout
    assert "gopher_short_doc" in rules and "< 50" in rules
    assert "mean_word_length" in signals
    assert prep("rules", "gofer").returncode == 2


def test_java_that_is_missing_or_unfit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.spark import check_java
    from schemas.errors import UserError

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="openjdk-17"):
        check_java()
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "11.0.2"\' >&2\nexit 0\n')
    java.chmod(0o755)
    with pytest.raises(UserError, match="17 or newer"):
        check_java()
    java.write_text('#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "21.0.2"\' >&2\nexit 0\n')
    with pytest.raises(UserError, match=r"jdk\.incubator\.vector"):
        check_java()


@pytest.mark.slow
def test_warm_writes_an_archive_once_and_a_damaged_one_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUSMILL_CACHE", str(tmp_path / "cache"))
    first, second = prep("warm"), prep("warm")
    assert first.returncode == 0 and first.stdout.strip().endswith("written"), first.stderr
    assert second.stdout.strip().endswith("there already")
    archive = Path(first.stdout.split(":")[0])
    assert archive.stat().st_size > 10_000_000 and archive.parent == tmp_path / "cache"
    archive.chmod(0o600)
    archive.write_bytes(b"not an archive")
    result = prep("clean", recipe(tmp_path, rules=[]), "--master", "local[1]")
    assert result.returncode == 0, result.stderr
