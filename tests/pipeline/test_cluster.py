"""The job under spark-submit, on a real standalone master with two workers: the bytes of the embedded run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from pipeline.bundle import write_bundle
from schemas.manifest import DocumentManifest
from tests.pipeline.corpus import shard_bytes, write_recipe

pytestmark = pytest.mark.slow
SPARK_HOME = Path(pyspark.__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    base = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SPARK_CONF_DIR")}
    return {**base, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


def start(role: str, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
    with log.open("wb") as sink:
        return subprocess.Popen(command, stdout=sink, stderr=sink, env=environment(), cwd=log.parent)


def wait_for(log: Path, text: str, count: int = 1) -> None:
    deadline = time.monotonic() + 90
    while log.read_text(errors="replace").count(text) < count:
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster")
    url = f"spark://127.0.0.1:{(port := free_port())}"
    log = folder / "master.log"
    master = start("master.Master", log, "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    processes = [master]
    try:
        wait_for(log, "I have been elected leader")
        for index in range(2):
            work = str(folder / f"work-{index}")
            options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1500m", "--webui-port", "0"]
            processes.append(start("worker.Worker", folder / f"worker-{index}.log", *options, "--work-dir", work, url))
        wait_for(log, "Registering worker", 2)
        yield url
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_the_cluster_gives_the_bytes_of_the_embedded_run(
    cluster: str, corpus: dict[str, Any], finished: tuple[Path, DocumentManifest], root: Path, tmp_path: Path
) -> None:
    bundle = write_bundle(tmp_path / "corpusmill.zip")
    recipe = write_recipe(tmp_path / "recipe.yaml", corpus["sources"], tmp_path / "out")
    job = tmp_path / "job" / "clean.py"  # away from the checkout: the packages must come from the bundle
    job.parent.mkdir()
    job.write_bytes((root / "jobs" / "clean.py").read_bytes())
    result = subprocess.run(
        [
            str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster, "--executor-memory", "600m",
            "--conf", "spark.executor.cores=1", "--conf", "spark.ui.enabled=false",
            "--conf", "spark.sql.shuffle.partitions=3", "--py-files", bundle, str(job), str(recipe),
        ],
        capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=600,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-4000:]
    assert result.stdout.strip().endswith("out/shards/manifest.json")
    assert shard_bytes(tmp_path / "out") == shard_bytes(finished[0])


def test_a_users_mistake_under_spark_submit_is_one_line(root: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(root / "jobs" / "clean.py"), str(tmp_path / "none.yaml")],
        capture_output=True, text=True, env={**environment(), "PYTHONPATH": str(root)}, timeout=120,
    )  # fmt: skip
    assert result.returncode == 2 and result.stderr.strip() == f"error: {tmp_path}/none.yaml: no such file"
