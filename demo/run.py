"""The demo: every move of the program on real text of this machine, as commands; then one table of what came out."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
OUT = Path("demo/out")
PROMPT = "def main("

# Name, command, the file whose presence says that the step is done.
STEPS = (
    ("corpus", "prep demo-corpus demo/corpus"),
    ("clean", "prep clean demo/recipe.yaml"),
    (
        "tokenizer",
        "prep tokenizer train demo/out/documents/shards --output demo/out/tokenizer --vocab-size 8192 --kind bpe"
        " --special '<|endoftext|>,[公司名]'",
    ),
    ("tokenize", "prep tokenize demo/out/documents/shards --tokenizer demo/out/tokenizer --output demo/out/tokens"),
    ("train", "train run demo/train.yaml"),
)


def run(command: str) -> float:
    """Run a command of the project in the checkout, its output on screen; seconds. Ends the demo if it fails."""
    print(f"\n$ {command}", flush=True)
    started = time.monotonic()
    status = subprocess.run(shlex.split(command), cwd=ROOT).returncode
    if status:
        print(f"the demo stopped: `{command}` ended with status {status}", file=sys.stderr)
        sys.exit(status)
    return time.monotonic() - started


def generate() -> str:
    """A few tokens of the exported model, through transformers alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = str(ROOT / OUT / "train" / "export")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    inputs = tokenizer(PROMPT, return_tensors="pt")
    result = model.generate(
        input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=24, do_sample=False,
        pad_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return str(tokenizer.decode(result[0]))


def read(path: str) -> Any:
    return json.loads((ROOT / OUT / path).read_text(encoding="utf-8"))


def summary(seconds: dict[str, float]) -> Table:
    """What went in, what was dropped and why, what came out, and where it lies."""
    documents, report = read("documents/shards/manifest.json"), read("documents/report.json")
    tokens, train = read("tokens/manifest.json"), read("train/summary.json")
    counts = documents["counts"]
    table = Table("", "", title="demo", show_header=False)
    table.add_row("documents in", f"{counts['seen']:,} ({report['text_bytes_in'] / 1e6:.1f} MB of text)")
    for reason, count in {**counts["dropped"], **counts["quarantined"]}.items():
        table.add_row(f"  {reason}", f"{count:,}")
    table.add_row("documents kept", f"{counts['kept']:,} ({report['text_bytes_kept'] / 1e6:.1f} MB)")
    table.add_row("tokens", f"{tokens['tokens']:,} ({report['text_bytes_kept'] / tokens['tokens']:.2f} bytes each)")
    table.add_row("model", f"{train['parameters']:,} weights, {train['steps']} steps, {train['tokens']:,} tokens seen")
    table.add_row("loss", f"{train['first_loss']:.3f} at the start, {train['last_loss']:.3f} at the end")
    table.add_row("validation perplexity", f"{train['validation_perplexity']:.1f}")
    table.add_row("speed", f"{train['tokens_per_s']:,.0f} tokens/s")
    table.add_section()
    for name in ("documents/shards", "documents/decisions", "tokenizer", "tokens", "train", "train/export"):
        table.add_row(name, str(OUT / name))
    table.add_section()
    table.add_row("seconds", ", ".join(f"{name} {value:.0f}" for name, value in seconds.items()))
    return table


def main() -> None:
    os.chdir(ROOT)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    shutil.rmtree(ROOT / OUT, ignore_errors=True)
    seconds = {name: run(command) for name, command in STEPS}
    print(f"\n$ transformers: generate({PROMPT!r})", flush=True)
    text = generate()
    console = Console()
    console.print(text, markup=False, highlight=False)
    console.print(summary(seconds))
    print(f"the demo took {sum(seconds.values()) / 60:.1f} minutes after set-up")


if __name__ == "__main__":
    main()
