"""One corpus and one finished reference run for all tests of the clean job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.plan import make_plan
from pipeline.stages import clean
from pipeline.storage import Storage
from schemas.config import load_model
from schemas.manifest import DocumentManifest
from schemas.recipe import Recipe
from tests.pipeline.corpus import write_corpus, write_recipe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("corpus")
    return {"folder": folder, **write_corpus(folder / "input")}


@pytest.fixture(scope="session")
def finished(
    corpus: dict[str, Any], spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, DocumentManifest]:
    """The reference run, with two cores in this process."""
    output = tmp_path_factory.mktemp("run") / "out"
    recipe = write_recipe(corpus["folder"] / "recipe.yaml", corpus["sources"], output)
    manifest = clean(make_plan(load_model(Recipe, recipe)), spark, Storage.at(str(output)))
    return output, manifest
