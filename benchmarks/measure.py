"""Run a command and watch its process tree; describe the machine; find the peers."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from schemas.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
PEERS_VARIABLE = "PREP_PEERS"
SAMPLE_S = 0.1
QUIET_LOAD = 0.5


@dataclass(frozen=True)
class Measured:
    """One run of a command. Seconds and MB (10^6 bytes); output as text.

    cpu_s sums what each process of the tree had used when last seen, every 0.1 s, so it is a little low; peak_rss_mb
    counts pages that processes share once for each.
    """

    wall_s: float
    cpu_s: float
    peak_rss_mb: float
    stdout: str
    stderr: str


def say(text: str) -> None:
    """Progress goes to stderr; stdout is for results."""
    print(text, file=sys.stderr, flush=True)


def peer_python(environment: Mapping[str, str] = os.environ) -> Path:
    """The interpreter that has the peers. Raises UserError with the remedy if it is missing."""
    folder = Path(environment.get(PEERS_VARIABLE) or ROOT / ".venv-peers")
    python = folder / "bin" / "python"
    if not python.is_file():
        raise UserError(f"{python} is missing: run make peers")
    return python


def machine() -> dict[str, Any]:
    """CPU model, cores, load average at this moment, memory in GB."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "load": round(os.getloadavg()[0], 2),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "python": platform.python_version(),
    }


def load_warning(load: float, cores: int) -> str | None:
    """A line if others keep the machine busy, so that figures are not to be trusted."""
    if load <= QUIET_LOAD * cores:
        return None
    return f"warning: load average {load:.2f} on {cores} cores; figures are worth keeping below {QUIET_LOAD * cores:g}"


def measured(command: Sequence[str | Path], folder: Path = ROOT) -> Measured:
    """Run `command` in `folder` to its end. Raises UserError with the end of its stderr if it fails."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        process = psutil.Popen([str(word) for word in command], cwd=folder, stdout=out, stderr=err, **_own_session())
        try:
            cpu_s, peak = _watch(process)
            wall_s = time.perf_counter() - started
        finally:
            _end(process)
        result = Measured(wall_s, cpu_s, peak / 1e6, _text(out), _text(err))
    if process.returncode != 0:
        tail = "\n".join(result.stderr.splitlines()[-15:])
        raise UserError(f"{Path(command[0]).name} ended with status {process.returncode}:\n{tail}")
    return result


def _own_session() -> dict[str, Any]:
    return {"stdin": subprocess.DEVNULL, "start_new_session": True}


def _watch(process: psutil.Popen) -> tuple[float, int]:
    """(CPU seconds, highest sum of resident bytes) of the tree, until its root ends."""
    cpu: dict[tuple[int, float], float] = {}
    peak = 0
    while True:
        resident = 0
        for one in _tree(process):
            try:
                with one.oneshot():
                    times = one.cpu_times()
                    cpu[one.pid, one.create_time()] = times.user + times.system
                    resident += one.memory_info().rss
            except psutil.Error:
                continue
        peak = max(peak, resident)
        try:
            process.wait(SAMPLE_S)
        except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
            continue
        return sum(cpu.values()), peak


def _tree(process: psutil.Popen) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _end(process: psutil.Popen) -> None:
    """Leave nothing of the command behind; it has its own session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", "replace")


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()
