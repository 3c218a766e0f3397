"""A training run put together: data, model, engine, checkpoints, reports; and taken apart in order."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from schemas.config import dump_yaml
from schemas.errors import UserError
from schemas.training import BatchPlan, TrainConfig, plan_batch
from train.checkpoint import Checkpoints, check_world, read_run
from train.data.source import DataState, TokenFolder, order_identity, resume_position
from train.data.stream import Prefetcher, TokenStream, micro_batches
from train.engine import Engine
from train.evaluate import Validation, open_validation, validation_loss
from train.export import export_checkpoint
from train.files import write_text
from train.loop import Hooks, train
from train.model import build_model
from train.parallel import Ranks
from train.preflight import preflight
from train.report import Reporter, finite
from train.state import RunState, check_trajectory, seed_everything

VERIFY_BYTES = 4 << 30  # token shards up to this size are read at start, in seconds
LAST_SKIPPED = 3  # a run must not end with so many skipped steps; 16-bit loss scaling skips single ones


class StopSignal:
    """SIGTERM and SIGINT ask for a checkpoint and a clean end; the same signal a second time ends at once."""

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(number, signal.SIG_DFL)


@dataclass
class Run:
    """The parts of a run and what passes between them."""

    config: TrainConfig
    ranks: Ranks
    plan: BatchPlan
    folder: TokenFolder
    validation: Validation | None
    engine: Engine
    checkpoints: Checkpoints
    reporter: Reporter
    identity: dict[str, Any]
    validation_result: dict[str, Any] | None = None

    def save(self, state: RunState) -> Path:
        """Write the checkpoint of `state`."""
        begin = time.perf_counter()
        run = {
            "state": state.to_json(),
            "data": DataState(state.n, self.identity).to_json(),
            "trajectory": self.config.trajectory(),
            "tokenizer": self.folder.manifest.tokenizer.model_dump(),
        }
        path = self.checkpoints.save(self.engine, state.step, run, dump_yaml(self.config))
        self.reporter.say(f"checkpoint {path} in {time.perf_counter() - begin:.1f} s")
        return path

    def validate(self, state: RunState) -> float | None:
        """Measure and report the validation loss; None without validation data."""
        if self.validation is None:
            return None
        loss, perplexity, tokens = validation_loss(self.engine, self.validation, self.plan, self.ranks)
        result = {"validation_loss": finite(loss), "validation_perplexity": finite(perplexity)}
        self.validation_result = result | {"validation_tokens": tokens}
        self.reporter.record({"step": state.step, **self.validation_result})
        self.reporter.say(f"validation at step {state.step}: loss {loss:.4f}, perplexity {perplexity:.2f}")
        return perplexity

    def resume(self, choice: str) -> RunState:
        """The state to go on from: `auto` takes the newest whole checkpoint, `none` starts afresh, else a path."""
        path = self._choose(choice)
        if path is None:
            return RunState()
        run = read_run(path)
        check_trajectory(run["trajectory"], self.config.trajectory())
        check_world(run, self.config.zero_stage, self.ranks)
        state = RunState(**run["state"])
        resume_position(run["data"], self.identity)
        self.checkpoints.restore(self.engine, path)
        self.reporter.say(f"resumed from {path} at step {state.step}, sequence {state.n:,}")
        return state

    def _choose(self, choice: str) -> Path | None:
        if choice == "auto":
            return self.checkpoints.newest_valid()
        if choice == "none":
            if self.checkpoints.published():
                raise UserError(
                    f"{self.checkpoints.root} holds checkpoints, and --resume none would mix two runs: "
                    "set output to a new folder, or remove this one"
                )
            return None
        path = Path(choice)
        if not path.is_dir():
            raise UserError(f"--resume {choice}: no such checkpoint; expected auto, none or a checkpoint folder")
        if found := self.checkpoints.faults(path):
            raise UserError(f"checkpoint {path} is damaged: {'; '.join(found)}: choose another one")
        return path


def build(config: TrainConfig, ranks: Ranks) -> Run:
    """Open and check everything a run needs. Raises UserError before anything is written."""
    plan = plan_batch(config.batch, ranks.world)
    folder = preflight(config)
    validation = open_validation(config, folder)
    for tokens in {id(data): data for data in (folder, validation.folder if validation else folder)}.values():
        verify_tokens(tokens, ranks)
    folder.sequence(0, folder.layout(config.seed, config.data.shuffle_block))
    tokenizer = folder.manifest.tokenizer
    seed_everything(config.seed, ranks.rank)
    engine = Engine(build_model(config, tokenizer), config, plan, ranks)
    output = Path(config.output)
    reporter = Reporter(output, config.schedule.steps, config.log_every, ranks.main)
    checkpoints = Checkpoints(output / "checkpoints", config.checkpoint.keep, ranks, reporter.say)
    identity = order_identity(config.data, config.seed, folder.manifest)
    return Run(config, ranks, plan, folder, validation, engine, checkpoints, reporter, identity)


def verify_tokens(folder: TokenFolder, ranks: Ranks) -> None:
    """Raise UserError on every rank if a shard differs from its checksum; each rank reads its share.

    Only data small enough to be read in seconds is read; the ids of all data are checked as they are used.
    """
    faults = folder.damaged(ranks.rank, ranks.world) if folder.bytes <= VERIFY_BYTES else []
    if found := [fault for part in ranks.gather(faults) for fault in part]:
        raise UserError("\n".join(found))


def execute(config: TrainConfig, ranks: Ranks, resume: str, stop_at: int | None) -> dict[str, Any]:
    """Train, validate, export, summarise. Returns the summary, which rank 0 also writes as summary.json."""
    run = build(config, ranks)
    state = run.resume(resume)
    last = min(config.schedule.steps, stop_at or config.schedule.steps)
    stop = StopSignal()
    layout = run.folder.layout(config.seed, config.data.shuffle_block)
    stream = TokenStream(run.folder, layout, run.plan, ranks.rank, state.n, max(0, last - state.step))
    reader = micro_batches(stream, config.data.num_workers, config.data.prefetch)
    data = Prefetcher(reader, run.plan.accumulation, config.data.prefetch)
    run.reporter.begin(state.step)
    started = state.step
    hooks = Hooks(run.reporter.step, run.save, run.validate, lambda: stop.requested)
    ready, start_s = time.perf_counter(), time.time() - psutil.Process().create_time()
    try:
        state = train(config, run.plan, run.engine, data, state, hooks, ranks, last)
    finally:
        data.close()
        run.reporter.end()
    seconds = time.perf_counter() - ready
    trained = (state.step - started) * run.plan.global_batch * config.data.sequence_length
    summary = summarise(run, state) | {
        "start_s": round(start_s, 2),
        "train_s": round(seconds, 2),
        "tokens_per_s": round(trained / seconds, 1),
    }
    if state.step == config.schedule.steps:
        check_converged(state)
        summary["export"] = export_newest(run)
    if ranks.main:
        write_text(Path(config.output) / "summary.json", json.dumps(summary, indent=1) + "\n")
        run.reporter.say(describe(summary))
    ranks.barrier()
    return summary


def check_converged(state: RunState) -> None:
    """Raise UserError if most steps or the very last ones were skipped, or the last loss was no number.

    Such a run reaches its end, but has trained nothing, or has stopped training on the way.
    """
    if 2 * state.skipped > state.step:
        what = f"{state.skipped} of {state.step} steps had non-finite gradients and were skipped"
    elif state.skipped_in_row >= LAST_SKIPPED:
        what = f"the last {state.skipped_in_row} of {state.step} steps had non-finite gradients and were skipped"
    elif not state.loss_finite:
        what = f"the loss of the last step, {state.step}, is not finite"
    else:
        return
    raise UserError(
        f"{what}: the run has diverged and is not exported; its checkpoints stay. "
        "Start a run in a new output folder with a lower optimizer.lr"
    )


def export_newest(run: Run) -> str:
    """Rank 0 exports the newest checkpoint; where it lies. Raises UserError on every rank if that fails."""
    target, error = Path(run.config.output) / "export", None
    if run.ranks.main:
        try:
            export_checkpoint(run.checkpoints.published()[0], target)
        except UserError as caught:
            error = str(caught)
    if (message := run.ranks.gather(error)[0]) is not None:
        raise UserError(message)
    return str(target)


def summarise(run: Run, state: RunState) -> dict[str, Any]:
    """What the run came to."""
    return {
        "finished": state.step == run.config.schedule.steps,
        "step": state.step,
        "steps": run.config.schedule.steps,
        "parameters": run.config.model.parameters(run.folder.manifest.tokenizer.vocab_size),
        "ranks": run.ranks.world,
        "tokens": state.n * run.config.data.sequence_length,
        "skipped_steps": state.skipped,
        "first_loss": state.first_loss,
        "last_loss": state.last_loss,
        **(run.validation_result or {}),
        "checkpoints": str(run.checkpoints.root),
        "export": None,
    }


def describe(summary: dict[str, Any]) -> str:
    """The summary for the terminal."""
    if not summary["finished"]:
        head = f"stopped at step {summary['step']} of {summary['steps']}; the same command goes on from there"
    else:
        head = (
            f"finished {summary['steps']} steps, {summary['tokens']:,} tokens, {summary['skipped_steps']} steps skipped"
        )
    first, last = (
        f"{loss:.4f}" if loss is not None else "none" for loss in (summary["first_loss"], summary["last_loss"])
    )
    lines = [head, f"  loss         {first} -> {last}"]
    if summary.get("validation_perplexity") is not None:
        lines.append(f"  validation   perplexity {summary['validation_perplexity']:.2f}")
    lines += [
        f"  speed        {summary['tokens_per_s']:,} tokens/s over {summary['train_s']} s, "
        f"{summary['start_s']} s to start",
        f"  checkpoints  {summary['checkpoints']}",
    ]
    return "\n".join(lines + ([f"  export       {summary['export']}"] if summary["export"] else []))
