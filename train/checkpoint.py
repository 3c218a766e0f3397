"""Checkpoints that are whole or absent.

A checkpoint is written aside, forced to disk, read back against the checksums of the bytes that were written, and
published by rename; `latest` changes last. Reading verifies every file first. The folder must be shared by all ranks.

    checkpoints/step-00000100/   engine/state/…     DeepSpeed's model and optimizer files
                                 model.safetensors  all weights, Hugging Face names, in the training precision
                                 random-00000.pt    random state of rank 0, …
                                 run.json           step, data position, trajectory, tokenizer
                                 config.yaml        the configuration as resolved
                                 manifest.json      size and xxh3-128 of every file above
    checkpoints/latest           name of the newest
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from schemas.errors import UserError
from train.engine import Engine
from train.files import checksum_from_disk, disk_errors, sync_file, sync_folder, write_text
from train.parallel import Ranks
from train.state import load_random_state, save_random_state

VERSION = 1
MANIFEST, RUN, CONFIG, WEIGHTS, LATEST = "manifest.json", "run.json", "config.yaml", "model.safetensors", "latest"
PREFIX = "step-"


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, root: Path, keep: int, ranks: Ranks, warn: Callable[[str], None]) -> None:
        self.root, self._keep, self._ranks, self._warn = root, keep, ranks, warn

    def published(self) -> list[Path]:
        """Published checkpoints, newest first. What a killed run left half-written has another name."""
        return published(self.root)

    def save(self, engine: Engine, step: int, run: dict[str, Any], config_yaml: str) -> Path:
        """Write, verify and publish the checkpoint of `step`. Every rank must call. Raises UserError."""
        final = self.root / f"{PREFIX}{step:08d}"
        aside = self.root / f".writing-{final.name}"
        try:
            with disk_errors(self.root):
                self._save(engine, aside, final, run, config_yaml)
        except UserError:
            shutil.rmtree(aside, ignore_errors=True)  # half a checkpoint must not keep a full disk full
            raise
        return final

    def _save(self, engine: Engine, aside: Path, final: Path, run: dict[str, Any], config_yaml: str) -> None:
        if self._ranks.main:
            self.root.mkdir(parents=True, exist_ok=True)
            for stale in self.root.glob(".*-step-*"):
                shutil.rmtree(stale)
            aside.mkdir()
        self._ranks.barrier()
        files = self._write(engine, aside, {"version": VERSION, "world": self._ranks.world, **run}, config_yaml)
        faults = _verify(aside, files)
        if every := [fault for part in self._ranks.gather(faults) for fault in part]:
            raise UserError(
                "the checkpoint just written reads back differently: " + "; ".join(every) + ": check the disk"
            )
        gathered = self._ranks.gather(files)
        if self._ranks.main:
            self._publish(aside, final, {name: entry for part in gathered for name, entry in part.items()})
        self._ranks.barrier()

    def _write(self, engine: Engine, aside: Path, run: dict[str, Any], config_yaml: str) -> dict[str, dict[str, Any]]:
        """This rank's files, `{name: {bytes, checksum}}`."""
        sums = engine.save(aside / "engine")
        random_state = aside / f"random-{self._ranks.rank:05d}.pt"
        sums[str(random_state)] = save_random_state(random_state)
        with engine.whole_weights() as weights:
            if self._ranks.main:
                save_file({name: tensor.contiguous() for name, tensor in weights.items()}, aside / WEIGHTS)
        if self._ranks.main:
            sync_file(aside / WEIGHTS)
            write_text(aside / RUN, json.dumps(run, indent=1, sort_keys=True) + "\n")
            write_text(aside / CONFIG, config_yaml)
            for name in (WEIGHTS, RUN, CONFIG):
                sums[str(aside / name)] = checksum_from_disk(aside / name)
        return {
            Path(path).relative_to(aside).as_posix(): {"bytes": os.path.getsize(path), "checksum": checksum}
            for path, checksum in sums.items()
        }

    def _publish(self, aside: Path, final: Path, files: dict[str, dict[str, Any]]) -> None:
        write_text(aside / MANIFEST, json.dumps({"version": VERSION, "files": files}, indent=1, sort_keys=True) + "\n")
        for folder in (aside / "engine" / "state", aside / "engine", aside):
            sync_folder(folder)
        if final.exists():  # a damaged one that the run fell back from
            final.rename(self.root / f".replaced-{final.name}")
        aside.rename(final)
        sync_folder(self.root)
        write_text(self.root / LATEST, final.name + "\n")
        for old in self.published()[self._keep :]:
            gone = old.with_name(f".deleting-{old.name}")
            old.rename(gone)  # first invisible, then gone: a kill in between leaves no half checkpoint
            shutil.rmtree(gone)
        for stale in self.root.glob(".replaced-*"):
            shutil.rmtree(stale)

    def newest_valid(self) -> Path | None:
        """The newest checkpoint whose every file is whole; None if there is no checkpoint at all.

        Damaged ones are passed over with a warning. Raises UserError if all are damaged: starting from scratch
        must be the user's decision.
        """
        candidates = self.published()
        for path in candidates:
            if not (faults := self.faults(path)):
                return path
            self._warn(f"checkpoint {path} is damaged ({'; '.join(faults)}); trying the one before")
        if candidates:
            raise UserError(
                f"{self.root}: none of the {len(candidates)} checkpoints is whole; "
                "remove the folder to start from scratch, or name a copy with --resume PATH"
            )
        return None

    def faults(self, path: Path) -> list[str]:
        """What is wrong with a checkpoint, the same on every rank; each rank reads its share of the files."""
        return faults(path, self._ranks)

    def restore(self, engine: Engine, path: Path) -> None:
        """Load model, optimizer and random state. Raises UserError if the number of ranks does not fit."""
        engine.load(path / "engine")
        random_state = path / f"random-{self._ranks.rank:05d}.pt"
        if random_state.exists():  # ZeRO-0 may go on with more ranks than wrote it
            load_random_state(random_state)


def published(root: Path) -> list[Path]:
    """Published checkpoints in a folder, newest first."""
    return sorted((path for path in root.glob(f"{PREFIX}*") if path.is_dir()), reverse=True)


def faults(path: Path, ranks: Ranks) -> list[str]:
    """See Checkpoints.faults."""
    try:
        files = json.loads((path / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        files = None
    if not all(ranks.gather(files is not None)):
        return [f"{MANIFEST} is missing or unreadable"]
    mine = dict(sorted(files.items())[ranks.rank :: ranks.world])
    return sorted(fault for part in ranks.gather(_verify(path, mine)) for fault in part)


def _verify(folder: Path, files: dict[str, dict[str, Any]]) -> list[str]:
    """Compare files with their recorded size and checksum; one line a difference."""
    found = []
    for name, entry in files.items():
        try:
            if (size := os.path.getsize(folder / name)) != entry["bytes"]:
                found.append(f"{name} has {size} bytes instead of {entry['bytes']}")
            elif checksum_from_disk(folder / name) != entry["checksum"]:
                found.append(f"{name} has another checksum")
        except OSError as error:
            found.append(f"{name}: {error.strerror}")
    return found


def read_run(path: Path) -> dict[str, Any]:
    """What the checkpoint says about its run."""
    values: dict[str, Any] = json.loads((path / RUN).read_text(encoding="utf-8"))
    if values["version"] != VERSION:
        raise UserError(f"{path}: checkpoint format {values['version']}, this program reads {VERSION}")
    return values


def check_world(saved: dict[str, Any], zero_stage: int, ranks: Ranks) -> None:
    """Raise UserError if ZeRO's shards were written by another number of ranks."""
    if zero_stage and saved["world"] != ranks.world:
        raise UserError(
            f"the checkpoint was written by {saved['world']} ranks with zero_stage {zero_stage}, this run has "
            f"{ranks.world}: start {saved['world']} ranks"
        )
