"""Links and odd files: a link back up is not followed, each file counts once, what cannot be read is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.inputs import list_inputs
from pipeline.readers.contract import InputSource
from schemas.errors import UserError


def names(path: Path, pattern: str = "") -> list[str]:
    return [file.name for file in list_inputs(InputSource("s", (str(path / pattern),), "text"))]


@pytest.mark.parametrize("pattern", ["", "**", "**/*.txt"])
def test_links_invent_no_documents(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "z.txt").write_text("x")
    (tmp_path / "a" / "loop").symlink_to("..")
    (tmp_path / "a" / "alias.txt").symlink_to("../z.txt")
    assert names(tmp_path, pattern) == ["z.txt"]


def test_a_link_to_another_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "b.txt").write_text("x")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "far")
    assert names(tmp_path / "in") == ["link/b.txt"]


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    for pattern in ("", "pipe.txt", "*"):
        with pytest.raises(UserError, match="no regular file"):
            names(tmp_path, pattern)
    (tmp_path / "pipe.txt").unlink()
    (tmp_path / "dangling.txt").symlink_to("nowhere")
    with pytest.raises(UserError, match="no regular file"):
        names(tmp_path)


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/bad\xff.txt", "w") as file:
        file.write("x")
    with pytest.raises(UserError, match="not UTF-8"):
        names(tmp_path)
