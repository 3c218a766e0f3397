"""Laws of the checkout: imports point one way, pins cover dependencies, pages agree with code."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.judge import load_rule_set, rule_sets
from schemas.arrow import DROP_REASONS, QUARANTINE_REASONS

PACKAGES = ("schemas", "pipeline", "tokenizer", "train", "jobs")
# Room -> packages and rooms of this project that it may import.
ALLOWED = {
    "schemas": {"schemas"},
    "pipeline": {"schemas", "pipeline"},
    "tokenizer": {"schemas", "tokenizer"},
    "train": {"schemas", "train"},
    "jobs": {"schemas", "pipeline", "tokenizer", "jobs"},
}
DOORS = {("pipeline/cli.py", "tokenizer")}  # the command line brings the packages together
# Inside pipeline: a room must not know these.
FORBIDDEN = {
    "pipeline/text": ("pipeline.readers", "pipeline.steps", "pipeline.storage", "pipeline.inputs", "pyspark"),
    "pipeline/steps": ("pipeline.readers", "pipeline.storage", "pipeline.inputs", "pipeline.judge", "pyspark"),
    "pipeline/readers": ("pipeline.steps", "pipeline.judge", "pipeline.storage", "pipeline.stages", "pyspark"),
}


def sources(root: Path, *packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (root / package).rglob("*.py"))


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def test_imports_point_one_way(root: Path) -> None:
    for path in sources(root, *PACKAGES):
        place = path.relative_to(root).as_posix()
        package = place.split("/")[0]
        for name in imports(path):
            head = name.split(".")[0]
            if head in PACKAGES and (place, head) not in DOORS and (place, name) != ("pipeline/cli.py", "schemas"):
                assert head in ALLOWED[package], f"{place} imports {name}"
        for room, forbidden in FORBIDDEN.items():
            if place.startswith(room + "/"):
                bad = [name for name in imports(path) if name.startswith(forbidden)]
                assert not bad, f"{place} imports {bad}"


def test_files_are_short(root: Path) -> None:
    for path in sources(root, *PACKAGES, "tests", "benchmarks", "tools"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 450, path


def dependencies(root: Path) -> set[str]:
    """Names in pyproject.toml's dependencies and extras."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    block = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    return {re.split(r"[<>=]", name)[0].lower() for name in re.findall(r'"([A-Za-z][^"]*)"', block)}


def test_every_direct_dependency_is_pinned(root: Path) -> None:
    pins = {}
    for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, version = re.fullmatch(r"([A-Za-z0-9_.-]+)==([^;]+)(;.*)?", line).groups()[:2]  # type: ignore[union-attr]
            pins[name.lower()] = version.strip()
    assert pins["torch"] == "2.13.0"
    assert dependencies(root) <= set(pins), dependencies(root) - set(pins)


def test_every_import_from_outside_is_a_dependency(root: Path) -> None:
    modules = {"yaml": "pyyaml"}
    known = dependencies(root) | set(sys.stdlib_module_names) | set(PACKAGES)
    for path in sources(root, *PACKAGES):
        for name in imports(path):
            head = name.split(".")[0]
            assert modules.get(head, head).lower() in known, f"{path} imports {name}"


def test_the_page_of_reasons_lists_them_all(root: Path) -> None:
    page = (root / "docs" / "reasons.md").read_text(encoding="utf-8")
    for reason, meaning in {**DROP_REASONS, **QUARANTINE_REASONS}.items():
        assert f"| `{reason}` | {meaning} |" in page
    for name in rule_sets():
        for rule in load_rule_set(name):
            assert f"| `{rule.reason}` | `{rule.signal} {rule.drop_if}` |" in page


def test_links_between_pages_lead_somewhere(root: Path) -> None:
    for page in [root / "README.md", *(root / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize(
    ("path", "message"),
    [("/nonexistent", "Java is missing"), ("/nonexistent", "no C++ compiler")],
)
def test_what_the_system_lacks_is_named(root: Path, path: str, message: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "CXX")}
    result = subprocess.run(
        [sys.executable, str(root / "tools" / "check_system.py")],
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2 and message in result.stderr and "apt-get install" in result.stderr
