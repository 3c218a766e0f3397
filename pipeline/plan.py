"""What a run will do, known before Spark starts: inputs, tasks, steps, rules, and the fingerprint of all of them."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.inputs import list_inputs, split_tasks
from pipeline.judge import Judge, judges
from pipeline.readers.contract import InputFile, InputSource, ReadTask
from pipeline.steps import Step, check_steps
from pipeline.steps.fingerprint import exact_fingerprint, near_fingerprint
from pipeline.steps.language import language
from pipeline.steps.normalize import normalize
from pipeline.steps.signals import signals
from pipeline.storage import Storage
from schemas.arrow import RAW_DOCUMENT
from schemas.errors import UserError
from schemas.manifest import FORMAT_VERSION, fingerprint
from schemas.recipe import Recipe, Source

PLAN = "plan.json"


@dataclass(frozen=True)
class Plan:
    """A checked recipe with its inputs. Task i writes part i; neither depends on cores or partitions."""

    recipe: Recipe
    files: dict[str, list[InputFile]]
    tasks: list[ReadTask]
    steps: list[Step]
    judges: dict[str, Judge]
    fingerprint: str

    @property
    def input_bytes(self) -> int:
        return sum(file.size for files in self.files.values() for file in files)

    @property
    def input_files(self) -> int:
        return sum(len(files) for files in self.files.values())


def steps_of(recipe: Recipe) -> list[Step]:
    """The steps of pass 1, in order."""
    steps = [normalize(recipe.normalize), language(recipe), signals()]
    if recipe.exact_dup.enabled:
        steps.append(exact_fingerprint())
    if recipe.near_dup.enabled:
        steps.append(near_fingerprint(recipe.near_dup))
    return steps


def input_source(source: Source) -> InputSource:
    return InputSource(source.name, tuple(source.paths), source.format, source.text_field, source.origin_field)


def recipe_fields(recipe: Recipe) -> dict[str, object]:
    """The recipe as it goes into manifests: without the place of the output."""
    return recipe.model_dump(mode="json", exclude={"output"})


def make_plan(recipe: Recipe) -> Plan:
    """List the inputs, cut them into tasks, check steps and rules. Raises UserError on any mistake in the recipe."""
    steps = steps_of(recipe)
    check_steps(steps, RAW_DOCUMENT.names)
    resolved = judges(recipe)
    files: dict[str, list[InputFile]] = {}
    tasks: list[ReadTask] = []
    for source in recipe.sources:
        files[source.name] = list_inputs(input_source(source))
        tasks += split_tasks(input_source(source), files[source.name], recipe.tasks.target_bytes)
    listing = {name: [(file.name, file.size) for file in found] for name, found in files.items()}
    rules = {name: [rule.model_dump(mode="json") for rule in judge.rules] for name, judge in resolved.items()}
    stamp = fingerprint(
        {"version": FORMAT_VERSION, "recipe": recipe_fields(recipe), "listing": listing, "rules": rules}
    )
    return Plan(recipe, files, tasks, steps, resolved, stamp)


def open_run(plan: Plan, storage: Storage, restart: bool = False) -> None:
    """Claim the output folder for this plan, or continue in it.

    Raises UserError if the folder holds a run of another recipe or other input, unless `restart` empties it.
    """
    if restart:
        for path in (PLAN, "parts", "quarantine", "ledger", "near", "decisions", "shards", "stages", "report.json"):
            storage.remove(path)
    mark = {"fingerprint": plan.fingerprint, "tasks": len(plan.tasks)}
    if storage.exists(PLAN):
        found = storage.read_json(PLAN)
        if found != mark:
            raise UserError(
                f"{storage.root}: holds a run of another recipe or of other input (fingerprint "
                f"{found.get('fingerprint')}, this one is {plan.fingerprint}): "
                "state another output, or start over with --restart"
            )
        return
    for path in ("parts", "shards"):
        if storage.names(path):
            raise UserError(f"{storage.root}: has a folder {path!r} of unknown origin: state another output")
    storage.write_json(PLAN, mark)
