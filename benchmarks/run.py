#!/usr/bin/env python3
"""`python benchmarks/run.py NAME`: measure, and print one line of JSON last. Without a name: list the benchmarks."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from schemas.errors import UserError  # noqa: E402  (the checkout has to be on the path)


def names() -> list[str]:
    """Benchmarks, by the files bench_<name>.py beside this one."""
    return sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))


def load(name: str) -> ModuleType:
    """The module of a benchmark: `add_arguments(parser)` and `run(options) -> dict`. Raises UserError if unknown."""
    if name not in names():
        raise UserError(f"no benchmark {name!r}: choose one of {', '.join(names())}")
    return importlib.import_module(f"benchmarks.bench_{name}")


def listing() -> str:
    """One line a benchmark: its name and the first line of its docstring."""
    return "\n".join(f"{name:12} {(load(name).__doc__ or '').strip().splitlines()[0]}" for name in names())


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, or 2 for a mistake that the message tells how to mend."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python benchmarks/run.py NAME [options]; NAME -h shows the options\n\n" + listing())
        return 0
    try:
        module = load(arguments[0])
        parser = argparse.ArgumentParser(
            prog=f"benchmarks/run.py {arguments[0]}",
            description=module.__doc__,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        module.add_arguments(parser)
        result = module.run(parser.parse_args(arguments[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that children end and temporary folders go
    sys.exit(main(sys.argv[1:]))
