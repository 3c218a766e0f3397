"""The project's packages as one zip for Spark executors."""

from __future__ import annotations

import zipfile
from pathlib import Path

from schemas.errors import UserError

PACKAGES = ("schemas", "pipeline", "tokenizer", "jobs")
ENDINGS = (".py", ".yaml", ".properties")
EPOCH = (1980, 1, 1, 0, 0, 0)  # no clock in the file: equal sources give equal bytes


def write_bundle(target: str | Path) -> str:
    """Write the zip and return its path. Raises UserError if there is nothing to pack or nowhere to write."""
    root = Path(__file__).resolve().parent.parent
    files = [
        path
        for package in PACKAGES
        for path in sorted((root / package).rglob("*"))
        if path.suffix in ENDINGS and "__pycache__" not in path.parts
    ]
    if not files:
        raise UserError(f"{root}: no sources to pack; run this from an installation on disk")
    path = Path(target)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
            for file in files:
                info = zipfile.ZipInfo(file.relative_to(root).as_posix(), EPOCH)
                info.compress_type = zipfile.ZIP_DEFLATED
                bundle.writestr(info, file.read_bytes())
    except OSError as error:
        raise UserError(f"{target}: cannot be written: {error}") from None
    return str(path)
