"""The command line `train`. Heavy modules are imported inside the commands, so that --help is quick."""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from pathlib import Path

import typer

from schemas.config import load_model
from schemas.errors import UserError
from schemas.training import TrainConfig
from train import environment

app = typer.Typer(
    name="train", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Train a language model on token shards with DeepSpeed: one CPU to many GPUs.",
)  # fmt: skip
data_app = typer.Typer(no_args_is_help=True, help="Look at token shards as training sees them.")
app.add_typer(data_app, name="data")

SET = typer.Option(
    [], "--set", metavar="KEY=VALUE", help="Override a setting, for example optimizer.lr=3e-4. Repeatable."
)


def _version(show: bool) -> None:
    if show:
        from importlib.metadata import version

        typer.echo(f"train {version('corpusmill')}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Options of the program itself."""


@app.command()
def run(
    config: Path = typer.Argument(..., metavar="CONFIG", help="YAML file of the run."),
    overrides: list[str] = SET,
    resume: str = typer.Option(
        "auto", help="auto: newest whole checkpoint, if any; none: start afresh; or a checkpoint."
    ),
    stop_at: int | None = typer.Option(None, min=1, help="Stop after this step with a checkpoint; the schedule stays."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Check the configuration and print the plan, then stop."),
    ranks: int | None = typer.Option(None, min=1, help="With --dry-run: plan for this many ranks."),
) -> None:
    """Train, validate, checkpoint and export; resumes by itself where a run was interrupted."""
    settings = load_model(TrainConfig, config, overrides)
    if dry_run:
        return _print_plan(settings, ranks or int(os.environ.get("WORLD_SIZE", "1")))
    if ranks is not None:
        raise UserError("--ranks plans with --dry-run only; start ranks with torchrun or deepspeed")
    environment.prepare()
    from train import parallel

    world = parallel.start()
    from train.run import execute

    execute(settings, world, resume, stop_at)
    parallel.stop()


def _print_plan(settings: TrainConfig, ranks: int) -> None:
    from train.plan import describe
    from train.preflight import memory_warning, preflight

    folder = preflight(settings)
    typer.echo(describe(settings, folder, ranks))
    if warning := memory_warning(settings, ranks, folder.manifest.tokenizer.vocab_size):
        typer.echo(warning, err=True)


@app.command()
def export(
    checkpoint: Path = typer.Argument(
        ..., metavar="CHECKPOINT", help="A checkpoint, or a run's output folder: its newest."
    ),
    to: Path = typer.Option(..., "--to", help="Folder to write; an earlier export there is replaced."),
) -> None:
    """Turn a checkpoint into a directory that transformers loads, and load it."""
    environment.prepare()
    from train.checkpoint import published
    from train.export import export_checkpoint

    if found := published(checkpoint / "checkpoints"):
        checkpoint = found[0]
    result = export_checkpoint(checkpoint, to)
    typer.echo(f"{result.path}: {result.parameters:,} parameters from {checkpoint}, loaded and compared")


@data_app.command("check")
def check(folder: Path = typer.Argument(..., help="Folder of token shards.")) -> None:
    """Read every shard: checksum, structure, token range, document ends."""
    from schemas.manifest import TokenManifest, read_manifest
    from train.data.sequences import check_shard

    manifest = read_manifest(TokenManifest, folder)
    faults = [fault for entry in manifest.shards for fault in check_shard(folder, manifest, entry)]
    documents = sum(entry.rows for entry in manifest.shards)
    tokens = sum(entry.tokens for entry in manifest.shards)
    if (documents, tokens) != (manifest.documents, manifest.tokens):
        faults.append(f"{folder}: the manifest's totals differ from the sums of its shards: write the shards again")
    if faults:
        raise UserError("\n".join(faults))
    typer.echo(f"{folder}: {len(manifest.shards)} shards, {documents:,} documents, {tokens:,} tokens: whole")


@data_app.command("show")
def show(
    n: int = typer.Argument(..., min=0, help="Number of the training sequence, from 0."),
    config: Path = typer.Argument(..., metavar="CONFIG", help="YAML file of the run."),
    overrides: list[str] = SET,
) -> None:
    """Print the n-th training sequence: where it lies, its documents, its text."""
    from tokenizers import Tokenizer

    from train.data.order import locate
    from train.data.source import TokenFolder
    from train.preflight import check_tokenizer

    settings = load_model(TrainConfig, config, overrides)
    data = settings.data
    folder = TokenFolder(data.train, data.sequence_length, data.validation_sequences)
    check_tokenizer(settings.tokenizer, folder.manifest.tokenizer)
    layout = folder.layout(settings.seed, data.shuffle_block)
    where, sequence = locate(n, layout), folder.sequence(n, layout)
    name = folder.manifest.shards[where.shard].path
    typer.echo(
        f"sequence {n}: epoch {where.epoch}, {name}, tokens {where.start} to {where.start + data.sequence_length}"
    )
    tokenizer = Tokenizer.from_file(str(Path(settings.tokenizer) / "tokenizer.json"))
    starts = [int(i) for i in (sequence.position_ids == 0).nonzero()[0]] + [data.sequence_length]
    for begin, end in pairwise(starts):
        text = tokenizer.decode(sequence.input_ids[begin:end].tolist(), skip_special_tokens=False)
        typer.echo(f"--- tokens {begin} to {end}\n{text}")


def _without_launcher_arguments(arguments: list[str]) -> list[str]:
    """Drop `--local_rank=N`, which the deepspeed launcher puts before the command; the environment says the same."""
    kept = []
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name in ("--local_rank", "--local-rank") and value:
            os.environ.setdefault("LOCAL_RANK", value)
        else:
            kept.append(argument)
    return kept


def _of_disk(error: OSError) -> UserError:
    """An error of the file system as one line. Raises it if it is about something else."""
    if error.errno is None or isinstance(error, (ConnectionError, TimeoutError)):
        raise error
    from train.files import disk_message

    return UserError(disk_message(error) or str(error))


def main() -> None:
    """Entry point: a UserError is printed without a stack trace and ends with status 2."""
    try:
        app(_without_launcher_arguments(sys.argv[1:]))
    except (UserError, OSError) as error:
        if isinstance(error, OSError):
            error = _of_disk(error)
        rank = os.environ.get("RANK", "0")
        typer.echo(f"error: {error}" if rank == "0" else f"error on rank {rank}: {error}", err=True)
        sys.stdout.flush()
        sys.exit(2)


if __name__ == "__main__":
    main()
