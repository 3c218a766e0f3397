"""Shared fixtures: one Spark session and one synthetic corpus for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
REAL_DATA = os.environ.get("PREP_TEST_DATA")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Real text; tests that want it are skipped where PREP_TEST_DATA does not name it."""
    if not REAL_DATA or not Path(REAL_DATA).is_dir():
        pytest.skip("PREP_TEST_DATA does not name the folder of real text")
    return Path(REAL_DATA)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One embedded session with two cores for all tests."""
    from pipeline.spark import embedded_session

    session = embedded_session("local[2]", "1g")
    yield session
    session.stop()
