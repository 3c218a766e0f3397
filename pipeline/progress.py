"""Progress on screen: one line a stage with an ETA, from Spark's own task counts; plain lines without a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.5
PLAIN_EVERY_S = 15.0


def say(text: str) -> None:
    """A line for the user, on stderr, so that stdout stays for results."""
    print(text, file=sys.stderr, flush=True)


def seconds(value: float) -> str:
    """12 s, 3 min 05 s, 2 h 07 min."""
    whole = round(value)
    if whole < 100:
        return f"{whole} s"
    if whole < 6000:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _tasks(spark: SparkSession) -> tuple[int, int]:
    """(finished, all) tasks of the stages that run now."""
    tracker = spark.sparkContext.statusTracker()
    done = total = 0
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        if info is not None:
            done += info.numCompletedTasks
            total += info.numTasks
    return done, total


def _line(title: str, done: int, total: int, elapsed: float) -> str:
    text = f"{title}: {seconds(elapsed)}"
    if total:
        text += f", task {done} of {total}"
        if done and elapsed > 2:
            text += f", {seconds(elapsed * (total - done) / done)} left"
    return text


def _watch(spark: SparkSession, title: str, stop: threading.Event, started: float) -> None:
    terminal = sys.stderr.isatty()
    last = started
    while not stop.wait(POLL_S):
        now = time.monotonic()
        if not terminal and now - last < PLAIN_EVERY_S:
            continue
        last = now
        line = _line(title, *_tasks(spark), now - started)
        if terminal:
            print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)
        else:
            say(line)


@contextmanager
def stage(spark: SparkSession, title: str) -> Iterator[None]:
    """Show `title` with progress while the block runs, and how long it took after it."""
    started = time.monotonic()
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, title, stop, started), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        if sys.stderr.isatty():
            print("\r\x1b[2K", end="", file=sys.stderr)
    say(f"{title}: done in {seconds(time.monotonic() - started)}")
