"""Strict configuration: YAML there and back, nearest keys, overrides; manifests that refuse what they are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.config import apply_overrides, dump_yaml, load_model, parse_model
from schemas.errors import UserError
from schemas.manifest import Counts, DocumentManifest, TokenManifest, fingerprint, read_manifest
from schemas.recipe import NearDuplicates, Recipe

MINIMAL = {"name": "n", "output": "o", "sources": [{"name": "s", "paths": ["p"]}]}


def test_yaml_there_and_back(tmp_path: Path) -> None:
    rules = [
        "gopher",
        {"reason": "gopher_short_doc", "drop_if": "< 3"},
        {"signal": "x", "drop_if": "> 1", "reason": "y"},
    ]
    recipe = parse_model(Recipe, {**MINIMAL, "rules": rules, "seed": 9}, "r")
    path = tmp_path / "r.yaml"
    path.write_text(dump_yaml(recipe), encoding="utf-8")
    assert load_model(Recipe, path) == recipe


def test_overrides_reach_nested_settings_and_know_numbers(tmp_path: Path) -> None:
    changed = apply_overrides(MINIMAL, ["near_dup.threshold=9e-1", "seed=3", "near_dup.enabled=false", "name=x y"])
    recipe = parse_model(Recipe, changed, "r")
    assert (
        recipe.near_dup.threshold == 0.9 and recipe.seed == 3 and not recipe.near_dup.enabled and recipe.name == "x y"
    )
    assert MINIMAL["name"] == "n"


@pytest.mark.parametrize("override", ["seed", "=3", "name.x=3"])
def test_a_malformed_override_is_refused(override: str) -> None:
    with pytest.raises(UserError, match="--set"):
        apply_overrides(MINIMAL, [override])


def test_unknown_keys_name_the_nearest_known_one() -> None:
    with pytest.raises(UserError, match="near_dup: unknown key 'treshold'; did you mean 'threshold'"):
        parse_model(Recipe, {**MINIMAL, "near_dup": {"treshold": 0.9}}, "r")
    with pytest.raises(UserError, match="known keys: name, output"):
        parse_model(Recipe, {**MINIMAL, "qqqq": 1}, "r")


def test_bands_that_do_not_fit_name_the_remedy() -> None:
    message = "bands x rows = 14 x 9 = 126, but num_perm is 112: set num_perm: 126 or rows: 8"
    with pytest.raises(UserError, match=message):
        parse_model(NearDuplicates, {"bands": 14, "rows": 9}, "r")


def test_counts_close() -> None:
    assert Counts(seen=6, kept=1, dropped={"a": 2}, quarantined={"b": 3}).closes()
    assert not Counts(seen=7, kept=1, dropped={"a": 2}, quarantined={"b": 3}).closes()


def test_manifests_that_are_missing_damaged_or_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has not finished"):
        read_manifest(DocumentManifest, tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        read_manifest(DocumentManifest, tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"kind": "tokens"}))
    with pytest.raises(UserError, match="'tokens' shards, but 'documents' shards"):
        read_manifest(DocumentManifest, tmp_path)
    with pytest.raises(UserError, match="fingerprint"):
        read_manifest(TokenManifest, tmp_path)


def test_fingerprints_ignore_the_order_of_keys() -> None:
    assert fingerprint({"a": 1, "b": "é"}) == fingerprint({"b": "é", "a": 1}) != fingerprint({"a": 2, "b": "é"})
