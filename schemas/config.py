"""Configuration is data: strict pydantic models, read from and written to YAML."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from schemas.errors import UserError

ModelT = TypeVar("ModelT", bound="StrictModel")


class StrictModel(BaseModel):
    """A frozen model that refuses unknown keys and names the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _name_nearest_key(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
                raise ValueError(f"unknown key {key!r}; {hint}")
        return values


def explain(error: ValidationError, origin: str) -> str:
    """Turn pydantic's report into one line a mistake: `origin: path.to.key: what is wrong`."""
    lines = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"]) or "(top level)"
        lines.append(f"{origin}: {where}: {item['msg'].removeprefix('Value error, ')}")
    return "\n".join(lines)


class _UniqueKeys(yaml.SafeLoader):
    """The safe loader, except that a key given twice is an error instead of the last one winning."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = [key for index, key in enumerate(keys) if key in keys[:index]]
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice[0]!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def parse_model(model: type[ModelT], values: Any, origin: str) -> ModelT:
    """Validate `values` as `model`; raises UserError with one line a mistake."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise UserError(explain(error, origin)) from None


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping with the safe loader. Raises UserError if the file is missing, not YAML, or not a mapping."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    try:
        values = yaml.load(text, _UniqueKeys)  # noqa: S506 - it is a SafeLoader
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a mapping at the top level, found {type(values).__name__}")
    return values


def apply_overrides(values: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """Apply `a.b=value` settings (value parsed as YAML) to a copy of `values`. Raises UserError on a malformed one."""
    result: dict[str, Any] = yaml.safe_load(yaml.safe_dump(values))
    for override in overrides:
        key, separator, raw = override.partition("=")
        if not separator or not key:
            raise UserError(f"--set {override}: expected key=value, for example --set seed=1")
        target = result
        *parents, leaf = key.split(".")
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise UserError(f"--set {override}: {parent!r} is a value, not a group of settings")
        target[leaf] = parse_scalar(raw)
    return result


def parse_scalar(raw: str) -> Any:
    """A command-line value as YAML, except that 3e-4 is a number (YAML 1.1 wants 3.0e-4)."""
    try:
        value = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise UserError(f"cannot read value {raw!r}: {error}") from None
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def load_model(model: type[ModelT], path: str | Path, overrides: list[str] | None = None) -> ModelT:
    """Read a YAML file as `model`, with `key=value` overrides. Raises UserError."""
    return parse_model(model, apply_overrides(read_yaml(path), overrides or []), str(path))


def dump_yaml(model: StrictModel) -> str:
    """The model as YAML, keys in declaration order, ready to be read back to an equal model."""
    return yaml.safe_dump(model.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
