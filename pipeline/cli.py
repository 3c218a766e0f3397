"""`prep`: from raw text to token shards. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from schemas.errors import UserError

if TYPE_CHECKING:
    from pipeline.plan import Plan
    from pipeline.storage import Storage

app = typer.Typer(
    name="prep",
    help="From raw text to token shards: clean, deduplicate and mix documents, train a tokenizer, tokenize.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Settings = Annotated[
    Optional[list[str]],
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. near_dup.threshold=0.85."),
]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"prep {version('corpusmill')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def clean(
    recipe: Annotated[str, typer.Argument(help="Recipe file (YAML); see `prep schema recipe`.")],
    settings: Settings = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show inputs, tasks, steps and rules; run nothing.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard what the output folder holds of earlier runs.")
    ] = False,
    master: Annotated[Optional[str], typer.Option(help="Spark master; default: local with all cores.")] = None,
    memory: Annotated[Optional[str], typer.Option(help="Driver memory, e.g. 8g; default: 40 % of the machine.")] = None,
) -> None:
    """Raw text -> document shards: read, normalise, score, filter, deduplicate, sample, shuffle (embedded Spark)."""
    from pipeline.plan import check_run, make_plan
    from pipeline.report import print_plan, print_summary
    from pipeline.storage import Storage
    from schemas.config import load_model
    from schemas.recipe import Recipe

    plan = make_plan(load_model(Recipe, recipe, settings or []))
    storage = Storage.at(plan.recipe.output)
    if dry_run:
        check_run(plan, storage, restart)
        print_plan(plan)
        return
    from pipeline.stages import begin

    with storage.lock():
        if begin(plan, storage, restart) is None:
            _run_embedded(plan, storage, master, memory)
    print_summary(storage)


def _run_embedded(plan: Plan, storage: Storage, master: str | None, memory: str | None) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from pipeline.spark import embedded_session
    from pipeline.stages import clean as run
    from pipeline.warm import warm_up

    with ThreadPoolExecutor(1) as pool:  # kernels compile while the JVM starts
        warm = pool.submit(warm_up, plan.recipe)
        session = embedded_session(master, memory, plan.input_bytes)
        warm.result()
    try:
        run(plan, session, storage)
    finally:
        session.stop()


@app.command("demo-corpus")
def demo_corpus(
    folder: Annotated[str, typer.Argument(help="Folder to write.")],
    limit: Annotated[Optional[int], typer.Option(min=1, help="At most this many documents of each kind.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write the folder anew if it exists.")] = False,
) -> None:
    """Collect a few thousand real documents from this machine: code, package descriptions, HTML pages. No network."""
    from pipeline.demo_corpus import build_demo_corpus

    summary = build_demo_corpus(folder, limit=limit, force=force)
    typer.echo(summary)


@app.command()
def schema(
    which: Annotated[str, typer.Argument(help="recipe or train")],
) -> None:
    """Print the JSON Schema of a recipe or of a training configuration."""
    import json

    if which == "recipe":
        from schemas.recipe import Recipe as model
    elif which == "train":
        from schemas.training import TrainConfig as model  # type: ignore[assignment]
    else:
        raise UserError(f"no schema {which!r}: choose recipe or train")
    typer.echo(json.dumps(model.model_json_schema(), indent=1, ensure_ascii=False))


@app.command()
def rules(
    names: Annotated[Optional[list[str]], typer.Argument(help="Rule sets to show; default: all.")] = None,
) -> None:
    """Print the rule sets: condition, reason, languages."""
    from pipeline.judge import rule_sets
    from pipeline.report import print_rules

    for name in names or rule_sets():
        print_rules(name)


@app.command()
def signals() -> None:
    """Print the quality signals that rules can name."""
    from pipeline.report import print_signals

    print_signals()


@app.command()
def quarantine(
    output: Annotated[str, typer.Argument(help="Output folder of a run.")],
    limit: Annotated[int, typer.Option(help="Rows to print.", min=1)] = 50,
) -> None:
    """Print what a run set aside: source, place, reason, first bytes."""
    from pipeline.report import print_quarantine
    from pipeline.storage import Storage

    print_quarantine(Storage.at(output), limit)


@app.command()
def pyfiles(
    target: Annotated[str, typer.Argument(help="Zip file to write.")],
) -> None:
    """Write the packages as a zip for `spark-submit --py-files`."""
    from pipeline.bundle import write_bundle

    typer.echo(write_bundle(target))


@app.command()
def warm() -> None:
    """Compile the kernels and archive Spark's classes, so that later commands start faster; once per machine."""
    from pipeline.spark import class_archive
    from pipeline.warm import archive_classes

    made = archive_classes()
    typer.echo(f"{class_archive()}: {'written' if made else 'there already'}")


def _add_tokenizer_commands() -> None:
    from tokenizer.cli import add_commands

    add_commands(app)


INTERRUPTED = 130  # 128 + SIGINT


def explain_spark(error: Exception) -> str | None:
    """One paragraph for an error that Spark raised, or None for any other; the Python cause comes first."""
    if not type(error).__module__.startswith(("pyspark", "py4j")):
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Error" in line and not line.startswith("at ")]
    user = [line for line in causes if "UserError:" in line]
    if user:
        return user[-1].split("UserError:", 1)[1].strip()
    return "Spark: " + (causes[-1] if causes else lines[0] if lines else type(error).__name__)


def main() -> None:
    """The console script: a UserError is one line and status 2, never a stack trace."""
    _add_tokenizer_commands()
    try:
        app()
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            typer.echo("interrupted; what is finished stays, and the same command goes on from there", err=True)
        raise
    except Exception as error:
        text = explain_spark(error)
        if text is None:
            raise
        typer.echo(f"error: {text}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
