"""Reading document shards: what is wrong is said, with the file's name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc

from schemas.errors import UserError
from tests.tokenizer.corpus import write_documents
from tokenizer.documents import open_documents, open_shard, sample, seeded_order


def test_both_folders_are_accepted(folder: Path) -> None:
    assert open_documents(folder).folder == open_documents(folder / "shards").folder
    assert open_documents(folder).rows == 196


@pytest.mark.parametrize("data", [b"", b"not arrow at all", b"ARROW1\0\0" + b"\xff" * 100])
def test_unreadable_shard_is_named(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.arrow").write_bytes(data)
    with pytest.raises(UserError, match=r"bad\.arrow: cannot be read"), open_shard(tmp_path / "bad.arrow"):
        pass


def test_missing_shard_is_named(tmp_path: Path) -> None:
    docs = open_documents(write_documents(tmp_path, [["some text"]]))
    (tmp_path / "shards" / "shard-00000.arrow").unlink()
    with pytest.raises(UserError, match=r"shard-00000\.arrow: cannot be read"):
        list(sample(docs, 0, 100))


def test_other_columns_are_refused(tmp_path: Path) -> None:
    table = pa.table({"doc_id": pa.array([b"x" * 16], pa.binary(16)), "text": ["small string"], "source": ["s"]})
    with ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(UserError, match="column text holds string, not large_string"), open_shard(tmp_path / "t.arrow"):
        pass


def test_an_error_of_the_body_is_not_blamed_on_the_shard(folder: Path) -> None:
    with pytest.raises(OSError, match="disk full"), open_shard(folder / "shards" / "shard-00000.arrow"):
        raise OSError("disk full")


def test_seeded_order_is_a_fixed_permutation() -> None:
    assert sorted(seeded_order(100, 1, 2).tolist()) == list(range(100))
    assert seeded_order(8, 0, 1).tolist() != seeded_order(8, 0, 2).tolist()
    assert seeded_order(8, 7).tolist() == GOLDEN


GOLDEN = [3, 2, 0, 6, 4, 1, 5, 7]
