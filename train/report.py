"""What a run tells: metrics as JSON lines, a progress line on the terminal, a summary."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from train.loop import StepEvent

METRICS = "metrics.jsonl"


def finite(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


class Reporter:
    """Rank 0's reports; silent on other ranks."""

    def __init__(self, output: Path, steps: int, log_every: int, main: bool) -> None:
        self._path, self._main, self._log_every, self._steps = output / METRICS, main, log_every, steps
        self.console = Console(file=sys.stdout, quiet=not main, soft_wrap=True, highlight=False)
        self._live = main and self.console.is_terminal
        self._progress = Progress(
            TextColumn("step"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=self.console,
            disable=not self._live,
        )  # fmt: skip
        self._task = self._progress.add_task("train", total=steps, note="")

    def begin(self, step: int) -> None:
        """Go on from `step`: metrics of later steps, of a run that was killed after its checkpoint, are removed."""
        if not self._main:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        kept = [line for line in lines if _step_of(line) <= step]
        aside = self._path.with_suffix(".tmp")
        aside.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        aside.replace(self._path)
        self._file = open(self._path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - closed by end
        self._progress.update(self._task, completed=step)
        self._progress.start()

    def end(self) -> None:
        """Close the progress line and the metrics."""
        self._progress.stop()
        if self._main:
            self._file.close()

    def say(self, message: str) -> None:
        """A line on the terminal."""
        self.console.print(message, markup=False)

    def record(self, values: dict[str, Any]) -> None:
        """A line of metrics."""
        if self._main:
            self._file.write(json.dumps(values) + "\n")

    def step(self, event: StepEvent) -> None:
        """Metrics of every step, a line on the terminal every `log_every`."""
        state, outcome = event.state, event.outcome
        rate = event.tokens / event.seconds
        self.record(
            {
                "step": state.step,
                "loss": finite(outcome.loss),
                "lr": event.lr,
                "grad_norm": finite(outcome.grad_norm),
                "tokens": state.step * event.tokens,
                "tokens_per_s": round(rate, 1),
                "data_wait_s": round(event.wait_s, 6),
                "skipped": state.skipped,
            }
        )
        note = f"loss {outcome.loss:.4f}  lr {event.lr:.2e}  grad {outcome.grad_norm:.3f}  {rate:,.0f} tokens/s"
        note += "" if outcome.applied else "  (skipped)"
        if self._live:
            self._progress.update(self._task, completed=state.step, note=note)
        elif state.step % self._log_every == 0 or state.step in (1, self._steps) or not outcome.applied:
            self.say(f"step {state.step}/{self._steps}  {note}  wait {event.wait_s * 1000:.1f} ms")


def _step_of(line: str) -> float:
    """The step of a line of metrics; a line cut short by a kill counts as later than all."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf
