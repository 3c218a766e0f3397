"""Spark sessions: embedded (local[*]) for `prep clean`, and the one that spark-submit brings."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from pipeline.text.jit import cache_root
from schemas.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GIB = 1 << 30
SMALL_INPUT = 2 * GIB
JAVA_PACKAGE = "Debian, Ubuntu: apt-get install openjdk-17-jre-headless"
# Settings of any session. Large offsets: a batch of text may exceed 2 GiB. Batches are bounded by bytes as well.
COMMON = {
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.session.timeZone": "UTC",
    "spark.task.maxFailures": "4",
}


def java_command() -> str:
    """The java that Spark will start. Raises UserError, naming the package to install, if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        if candidate.is_file():
            return str(candidate)
        raise UserError(f"JAVA_HOME is {home}, but {candidate} does not exist: unset JAVA_HOME or point it to a JDK")
    found = shutil.which("java")
    if found is None:
        raise UserError(f"Java is missing: install a Java 17 or newer runtime ({JAVA_PACKAGE})")
    return found


def check_java() -> None:
    """Raise UserError if Java is missing, older than 17, or without the module that Spark asks for."""
    command = java_command()
    try:
        version = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60).stderr
        modules = subprocess.run([command, "--list-modules"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{command} cannot be run: {error}; install a Java 17 or newer runtime") from None
    match = re.search(r'version "(\d+)', version)
    if match is None or int(match.group(1)) < 17:
        raise UserError(
            f"{command} is {version.splitlines()[0] if version else 'of unknown version'}; "
            f"Spark 4 needs Java 17 or newer ({JAVA_PACKAGE})"
        )
    if "jdk.incubator.vector" not in modules:
        raise UserError(
            f"{command} lacks the module jdk.incubator.vector, which Spark 4.3 asks for: install a full Java runtime, "
            f"not one cut down with jlink ({JAVA_PACKAGE})"
        )


def driver_memory(total: int) -> int:
    """Heap of the embedded JVM in bytes: 40 % of the machine (the Python workers need the rest), 1 to 48 GiB."""
    return max(GIB, min(int(total * 0.4), 48 * GIB))


def executor_memory(total: int) -> int:
    """Heap of an executor in bytes where none is stated: a quarter of a machine like this one, 1 to 4 GiB."""
    return max(GIB, min(total // 4, 4 * GIB))


def java_options(input_bytes: int) -> list[str]:
    """Flags of the embedded JVM.

    On small input the optimising compiler costs more than it brings (57 MB of text: 31 s of JVM processor time with it,
    16 s without), and Spark's classes are mapped from an archive where `prep warm` has made one (a session starts in
    3 s instead of 6).
    """
    if input_bytes >= SMALL_INPUT:
        return ["-XX:+UseParallelGC"]
    archive = class_archive()
    mapped = [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []
    return ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *mapped]


def class_archive() -> Path:
    """Where the archive of Spark's classes lies: one for each Java and each installation of pyspark."""
    import pyspark

    release = Path(os.path.realpath(java_command())).parent.parent / "release"
    java = release.read_text(errors="replace") if release.is_file() else java_command()
    key = hashlib.sha256(f"{java}\0{pyspark.__version__}\0{pyspark.__file__}".encode()).hexdigest()[:16]
    return cache_root() / f"spark-{key}.jsa"


def embedded_session(
    master: str | None = None, memory: str | None = None, input_bytes: int = 0, flags: Sequence[str] | None = None
) -> SparkSession:
    """A session inside this process, for about `input_bytes` of input. Raises UserError if Java is unfit.

    `flags` replaces `java_options`.
    """
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    cores = os.cpu_count() or 1
    flags = java_options(input_bytes) if flags is None else flags
    log4j = Path(__file__).with_name("log4j2.properties")
    builder = SparkSession.builder.appName("prep clean").master(master or f"local[{cores}]")
    settings = {
        **COMMON,
        "spark.driver.memory": memory or f"{driver_memory(psutil.virtual_memory().total) >> 20}m",
        "spark.driver.extraJavaOptions": " ".join([f"-Dlog4j2.configurationFile={log4j.as_uri()}", *flags]),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.python.daemon.module": "pipeline.daemon",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(max(2, 2 * cores)),
        "spark.sql.warehouse.dir": os.path.join(os.environ.get("TMPDIR", "/tmp"), "corpusmill-warehouse"),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    return session


def submitted_session() -> SparkSession:
    """The session of spark-submit, with an executor memory of this machine's measure where none is stated."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()  # before this, SparkConf does not see what spark-submit was told
    stated = SparkConf()
    builder = SparkSession.builder
    for key, value in COMMON.items():
        if not stated.contains(key):
            builder = builder.config(key, value)
    if not stated.contains("spark.executor.memory"):
        memory = executor_memory(psutil.virtual_memory().total)
        builder = builder.config("spark.executor.memory", f"{memory >> 20}m")
    return builder.getOrCreate()
