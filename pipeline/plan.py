"""What a run will do, known before Spark starts: inputs, tasks, steps, rules, and the fingerprint of all of them."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from typing import Any

from pipeline.inputs import list_inputs, split_tasks
from pipeline.judge import Judge, judges
from pipeline.readers.contract import InputFile, InputSource, ReadTask
from pipeline.steps import Step, check_steps
from pipeline.steps.fingerprint import exact_fingerprint, near_fingerprint
from pipeline.steps.language import known_languages, language
from pipeline.steps.normalize import normalize
from pipeline.steps.signals import signals
from pipeline.storage import Storage
from schemas.arrow import RAW_DOCUMENT
from schemas.errors import UserError
from schemas.manifest import FORMAT_VERSION, fingerprint
from schemas.recipe import Recipe, RuleSpec, Source

PLAN = "plan.json"
INPUTS = "inputs.json"
FOLDERS = ("parts", "quarantine", "ledger", "near", "decisions", "shards", "stages")


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
    _check_languages(recipe)
    files: dict[str, list[InputFile]] = {}
    tasks: list[ReadTask] = []
    for source in recipe.sources:
        files[source.name] = list_inputs(input_source(source))
        tasks += split_tasks(input_source(source), files[source.name], recipe.tasks.target_bytes)
    _check_place(recipe, files)
    listing = {name: [(file.name, file.size) for file in found] for name, found in files.items()}
    rules = {name: [rule.model_dump(mode="json") for rule in judge.rules] for name, judge in resolved.items()}
    decisive = {key: value for key, value in recipe_fields(recipe).items() if key != "quarantine"}
    stamp = fingerprint({"version": FORMAT_VERSION, "recipe": decisive, "listing": listing, "rules": rules})
    return Plan(recipe, files, tasks, steps, resolved, stamp)


# Codes that fastText does not know, but a source may state: program text, and undetermined.
STATED_ONLY = {"code", "und"}


def _check_languages(recipe: Recipe) -> None:
    """Raise UserError if a code that the recipe names is none that is identified, and so would match nothing."""
    named = [("language.keep", name) for name in recipe.language.keep or []]
    named += [(f"source {source.name!r}: lang", source.lang) for source in recipe.sources if source.lang is not None]
    for rules in [recipe.rules, *(source.rules or [] for source in recipe.sources)]:
        for rule in rules:
            if isinstance(rule, RuleSpec):
                codes = [*(rule.languages or []), *(rule.except_languages or [])]
                named += [(f"rule {rule.reason}", code) for code in codes]
    known = (known_languages() | STATED_ONLY) if named else set()
    for place, name in named:
        if name not in known:
            base = name.replace("_", "-").split("-")[0].lower()
            near = [base] if base in known else difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "use ISO 639-1 codes such as en, zh, ja"
            raise UserError(f"{place}: {name!r} is no language code that is known here; {hint}")


def _check_place(recipe: Recipe, files: dict[str, list[InputFile]]) -> None:
    """Raise UserError if the output lies where a source is read: its files would become input of the next run."""
    output = Storage.at(recipe.output).local_path("")
    if output is None:
        return
    real = os.path.realpath(output)
    folders = [real] + [
        os.path.realpath(path) for source in recipe.sources for path in source.paths if os.path.isdir(path)
    ]
    inside = [
        file.path
        for found in files.values()
        for file in found
        if not file.filesystem and os.path.realpath(file.path).startswith(real + os.sep)
    ]
    if inside or any(real.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders[1:]):
        raise UserError(
            f"output {recipe.output}: lies inside a source's folder (or holds its files): state another output"
        )


def open_run(plan: Plan, storage: Storage, restart: bool = False) -> None:
    """Claim the output folder for this plan, or continue in it.

    Raises UserError if the folder holds files of unknown origin, or a run of another recipe or of other input that
    `restart` does not discard.
    """
    if check_run(plan, storage, restart):
        return
    for path in (PLAN, INPUTS, *FOLDERS, "report.json"):
        storage.remove(path)
    storage.write_json(INPUTS, _modified(plan))
    storage.write_json(PLAN, {"fingerprint": plan.fingerprint, "recipe": recipe_fields(plan.recipe)})


def check_run(plan: Plan, storage: Storage, restart: bool = False) -> bool:
    """Whether the output folder holds this very run, to go on with; writes nothing. Raises as `open_run`."""
    found = storage.read_json(PLAN)
    if found is None:
        _refuse_foreign(storage)
        return False
    if restart:
        return False
    if found.get("fingerprint") != plan.fingerprint:
        raise UserError(
            f"{storage.root}: holds a run of another recipe or of other input ({_changes(plan, found)}): "
            "state another output, or start over with --restart"
        )
    _refuse_changed(plan, storage)
    return True


def _changes(plan: Plan, found: dict[str, Any]) -> str:
    """What differs between the recipe of a run and this one, in words."""
    before, now = flatten(found.get("recipe", {})), flatten(recipe_fields(plan.recipe))
    changed = [
        f"{key} was {before.get(key)!r} and is {now.get(key)!r}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and not key.startswith("quarantine.")
    ]
    return "; ".join(changed[:5]) or "the files or the rule sets changed"


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings and lists as `a.0.b: value`."""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return {prefix.rstrip("."): value}
    return {key: leaf for name, item in items for key, leaf in flatten(item, f"{prefix}{name}.").items()}


def _refuse_foreign(storage: Storage) -> None:
    """Without a readable plan nothing says that the files there are ours to delete or to build on."""
    for path in FOLDERS:
        if storage.exists(path):
            raise UserError(
                f"{storage.root}: has a folder {path!r}, but no readable {PLAN}, so it may be somebody else's: "
                "state another output, or delete the folder yourself"
            )


def _modified(plan: Plan) -> dict[str, dict[str, int]]:
    return {source: {file.name: file.modified for file in files} for source, files in plan.files.items()}


def _refuse_changed(plan: Plan, storage: Storage) -> None:
    """A file that was written since the run began must not be mixed with what was read of it before."""
    before = storage.read_json(INPUTS) or {}
    for source, files in _modified(plan).items():
        for name, modified in files.items():
            if before.get(source, {}).get(name) != modified:
                raise UserError(
                    f"source {source!r}: {name!r} was modified since the run in {storage.root} began: "
                    "state another output, or start over with --restart"
                )
