"""`prep tokenizer` and `prep tokenize`. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from schemas.errors import UserError

ShardsArgument = Annotated[str, typer.Argument(help="Folder of document shards that `prep clean` wrote.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")]

tokenizer_app = typer.Typer(name="tokenizer", help="Train a tokenizer, or show one.", no_args_is_help=True)


def add_commands(app: typer.Typer) -> None:
    """Add `tokenizer train`, `tokenizer show` and `tokenize` to `prep`."""
    app.add_typer(tokenizer_app)
    app.command()(tokenize)


@tokenizer_app.command()
def train(
    shards: ShardsArgument,
    output: Annotated[str, typer.Option(help="Folder to write; must not exist.")],
    vocab_size: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="Entries, special tokens and 256 bytes included.")
    ],
    kind: Annotated[str, typer.Option(help="bpe or unigram; both byte-level, so any text round-trips.")] = "bpe",
    special: Annotated[
        str,
        typer.Option(help="Special tokens, with commas; they get the first ids. <|...|> is never matched in text."),
    ] = "<|endoftext|>",
    eos: Annotated[
        Optional[str], typer.Option(help="End-of-document token; default: the special token with 'endoftext' in it.")
    ] = None,
    min_frequency: Annotated[
        int, typer.Option(min=1, max=2**62, help="bpe: least count of a pair that is merged.")
    ] = 2,
    sample_bytes: Annotated[int, typer.Option(min=1, max=2**62, help="Bytes of text to train on.")] = 200_000_000,
    seed: Annotated[int, typer.Option(min=0, max=2**62, help="Chooses the sample.")] = 0,
    dry_run: DryRun = False,
) -> None:
    """Document shards -> tokenizer, a folder that transformers.AutoTokenizer loads."""
    from pathlib import Path

    from tokenizer.documents import open_documents
    from tokenizer.saved import refuse_existing
    from tokenizer.trainers import TrainerConfig, check_vocab_size, resolve_special
    from tokenizer.trainers import train as run

    if kind not in ("bpe", "unigram"):
        raise UserError(f"--kind {kind}: choose bpe or unigram")
    names, end = resolve_special(special.split(","), eos)
    config = TrainerConfig(
        "bpe" if kind == "bpe" else "unigram", vocab_size, names, end, min_frequency, sample_bytes, seed
    )
    check_vocab_size(config)
    documents = open_documents(shards)
    target = Path(output).expanduser()
    refuse_existing(target)
    sampled = min(sample_bytes, documents.text_bytes)
    typer.echo(
        f"{kind}, {vocab_size:,} entries, on {sampled / 1e6:.1f} of {documents.text_bytes / 1e6:.1f} MB of text "
        f"({documents.rows:,} documents, {len(documents.manifest.shards)} shards), seed {seed}; end token {end}",
        err=True,
    )
    if dry_run:
        return
    if kind == "unigram":
        typer.echo(
            "warning: unigram training is slow, and its scores differ slightly from run to run (bpe's bytes do not)",
            err=True,
        )
    saved = run(documents, config, target)
    if saved.ref.vocab_size < vocab_size:
        typer.echo(
            f"warning: the text gave {saved.ref.vocab_size:,} entries, not {vocab_size:,}: give more text "
            "(--sample-bytes, or more documents) or a smaller --vocab-size",
            err=True,
        )
    typer.echo(f"{target}: {saved.ref.vocab_size:,} entries, end token {end} = {saved.ref.eos_id}")
    typer.echo(f"fingerprint {saved.ref.fingerprint}")


@tokenizer_app.command()
def show(
    folder: Annotated[str, typer.Argument(help="Tokenizer folder.")],
    text: Annotated[Optional[str], typer.Option(help="Also encode this text.")] = None,
    eos: Annotated[Optional[str], typer.Option(help="End-of-document token, where the folder names none.")] = None,
) -> None:
    """Print size, end token, added tokens and fingerprint of a tokenizer."""
    from tokenizer.saved import read_tokenizer
    from tokenizer.trainers import is_text

    if text is not None and not is_text(text):
        raise UserError("--text: not UTF-8: set the terminal to UTF-8 and type it again")
    saved = read_tokenizer(folder, eos)
    tokenizer = saved.load()
    typer.echo(f"kind         {type(tokenizer.model).__name__}")
    typer.echo(f"entries      {saved.ref.vocab_size:,} ({saved.dtype})")
    typer.echo(f"end token    {saved.ref.eos_token} = {saved.ref.eos_id}")
    typer.echo(f"fingerprint  {saved.ref.fingerprint}")
    for number, token in sorted(tokenizer.get_added_tokens_decoder().items())[:32]:
        meaning = "control, never matched in documents" if token.special else "domain, matched in documents"
        typer.echo(f"{number:>12} {token.content!r}: {meaning}")
    if text is not None:
        encoded = tokenizer.encode(text, add_special_tokens=False)
        typer.echo(" ".join(map(str, encoded.ids)))
        typer.echo(" ".join(encoded.tokens))


def tokenize(
    shards: ShardsArgument,
    tokenizer: Annotated[str, typer.Option(help="Tokenizer folder.")],
    output: Annotated[str, typer.Option(help="Folder of token shards to write.")],
    eos: Annotated[Optional[str], typer.Option(help="End-of-document token; default: the tokenizer's own.")] = None,
    workers: Annotated[Optional[int], typer.Option(min=1, max=1024, help="Processes; default: one a core.")] = None,
    dry_run: DryRun = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard token shards of earlier runs in the output folder.")
    ] = False,
) -> None:
    """Document shards -> token shards: ids of each document and the end token, ready to be mapped into memory."""
    from tokenizer.documents import open_documents
    from tokenizer.saved import read_tokenizer
    from tokenizer.tokenize import default_workers, make_plan
    from tokenizer.tokenize import tokenize as run

    documents = open_documents(shards)
    plan = make_plan(documents, read_tokenizer(tokenizer, eos), output, restart)
    ref = plan.saved.ref
    typer.echo(
        f"{len(plan.units)} shards ({len(plan.done)} finished before), {documents.rows:,} documents, "
        f"{documents.text_bytes / 1e6:.1f} MB of text; {ref.vocab_size:,} entries -> {plan.saved.dtype}, "
        f"end token {ref.eos_token} = {ref.eos_id}; {workers or default_workers()} workers",
        err=True,
    )
    if dry_run:
        return
    manifest = run(plan, workers, restart)
    typer.echo(f"{plan.output / 'manifest.json'}: {manifest.documents:,} documents, {manifest.tokens:,} tokens")
