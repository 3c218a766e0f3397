"""`spark-submit --py-files corpusmill.zip jobs/clean.py RECIPE`: the job of `prep clean` on a cluster."""

from __future__ import annotations

import argparse
import sys

from pipeline.plan import make_plan
from pipeline.report import print_summary
from pipeline.spark import submitted_session
from pipeline.stages import MANIFEST, begin, clean
from pipeline.storage import Storage
from schemas.config import load_model
from schemas.errors import UserError
from schemas.recipe import Recipe


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", help="recipe file (YAML); inputs and output must be reachable from every executor")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting of the recipe"
    )
    parser.add_argument("--restart", action="store_true", help="discard what the output folder holds of earlier runs")
    options = parser.parse_args(arguments)
    try:
        plan = make_plan(load_model(Recipe, options.recipe, options.set))
        storage = Storage.at(plan.recipe.output)
        with storage.lock():
            if begin(plan, storage, options.restart) is None:
                session = submitted_session()
                clean(plan, session, storage)
                session.stop()
        print_summary(storage)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{storage.root.rstrip('/')}/{MANIFEST}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
