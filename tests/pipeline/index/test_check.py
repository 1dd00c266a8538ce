"""An index against what was recorded of it: what fits, and what each mismatch is called."""

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.flows import open_systems
from darklode.flows.runs import update_inputs
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import DoesNotFit
from darklode.pipeline.index.build import INDEX_STAGE
from darklode.pipeline.index.check import require_same
from darklode.pipeline.index.faiss_io import from_bytes, one_thread, to_bytes
from darklode.schemas.serving_tables import INDEX_FILES
from helpers.indexed import IDS, clustered, copied, put_vectors


@pytest.fixture
def folder(indexed: Path, tmp_path: Path) -> Path:
    """An index of one's own."""
    return copied(indexed / "index", tmp_path / "index")


def refused(folder: Path) -> str:
    """What is said; empty where all is as it was."""
    with open_systems.open_index_check(str(folder)) as check:
        findings = list(check.findings())
        try:
            require_same(str(folder), findings)
        except DoesNotFit as error:
            return str(error).partition(" differs from its record: ")[2]
    assert findings[-1].subject == "first ten"
    return ""


def recorded(folder: Path, **facts: object) -> None:
    found = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps(found | facts))


def test_a_finished_index_is_as_it_was_recorded(indexed: Path) -> None:
    assert refused(indexed / "index") == ""


def test_another_file_is_noticed(folder: Path) -> None:
    data = bytearray((folder / "index.faiss").read_bytes())
    data[-1] ^= 1
    (folder / "index.faiss").write_bytes(data)
    assert refused(folder).startswith("file index.faiss: ")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"codebook": "0" * 16}, "codebook: "),
        ({"dimensions": 16}, "dimensions: 32, recorded 16"),
        ({"count": 3}, "count: 1500, recorded 3"),
    ],
)
def test_what_is_recorded_otherwise_is_named(folder: Path, facts: dict[str, object], said: str) -> None:
    recorded(folder, **facts)
    assert refused(folder).startswith(said)


def test_a_run_that_changed_since_is_noticed(folder: Path, tmp_path: Path) -> None:
    vectors = clustered()
    vectors[9] = vectors[8]
    now = put_vectors(tmp_path / "now.parquet", [*IDS[5:], "new"], vectors[[*range(5, 1500), 3]])
    update_inputs(Run(str(folder)), source=str(now))
    assert "now.parquet: 2 added or changed, 6 removed or changed; run `darklode index update`" in refused(folder)


def test_an_index_that_finds_other_texts_is_noticed(folder: Path) -> None:
    """Codes under wrong numbers: files and counts are right, as far as anybody wrote them down."""
    index = from_bytes((folder / "index.faiss").read_bytes(), "")
    index.reset()
    with one_thread():
        index.add_with_ids(clustered(), np.arange(1500)[::-1].copy())
    data = bytes(to_bytes(index))
    (folder / "index.faiss").write_bytes(data)
    run = Run(str(folder))
    rows = run.tables("index_files").read("index_files").to_pylist()
    rows[0] |= {"sha256": sha256(data).hexdigest(), "bytes": len(data)}
    table = pa.Table.from_pylist(rows, INDEX_FILES.schema)
    run.execute(run.plan(INDEX_STAGE, {}), lambda _, output: output.write("index_files", table))
    recorded(folder, files=rows)
    assert refused(folder).startswith("first ten: unchanged for 0 of 16 recorded queries")
