from pathlib import Path
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.export.formats import export
from darklode.pipeline.export.writers import define_ids
from darklode.schemas.label_tables import QRELS
from darklode.schemas.tables import CHUNKS, QUERIES
from helpers.finished_run import finished_run
from helpers.runs import put

HOSTILE = [
    "a b",
    "tab\t",
    "\r\n",
    "\u00a0",
    "\u2028",
    "\x1c\x85\x0b",
    "100%",
    "a%20b",
    '"',
    "../x",
    "'; DROP",
    "☃",
]


def exported(tenants: int, ids: list[tuple[str, str]]) -> list[str]:
    """Ids as exported from a run of so many tenants."""
    with duckdb.connect() as opened:
        named = "SELECT 'q' AS query_id, CAST(range AS VARCHAR) AS tenant"
        opened.execute(f"CREATE TABLE queries AS {named} FROM range({tenants})")
        opened.execute("CREATE TABLE chunks AS SELECT '' AS chunk_id, tenant FROM queries")
        define_ids(opened)
        return [str(row[0]) for pair in ids for row in opened.execute("SELECT exported(?, ?)", pair).fetchall()]


@given(st.lists(st.text(min_size=1), min_size=1))
@example(HOSTILE)
@settings(deadline=None, max_examples=20)
def test_an_id_is_one_word_without_quotes_and_comes_back(names: list[str]) -> None:
    for safe, name in zip(exported(1, [("t", name) for name in names]), names, strict=True):
        assert safe.split() == [safe]
        assert not set(safe) & set('\t\r\n"')
        assert unquote(safe) == name


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, unique=True))
@example([("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("", "/"), ("/", "")])
@settings(deadline=None, max_examples=20)
def test_tenants_ids_never_meet_and_come_back(ids: list[tuple[str, str]]) -> None:
    names = exported(2, ids)
    assert len(set(names)) == len(ids)
    split = [name.split("/", 1) for name in names]
    assert [(unquote(tenant), unquote(name)) for tenant, name in split] == ids


def test_one_tenants_plain_ids_stay() -> None:
    assert exported(1, [("a", "docs/page.md#1f")]) == ["docs/page.md#1f"]


@pytest.mark.parametrize(("name", "mapped"), [("plain#1", False), ("not plain#1", True)])
def test_a_map_is_written_only_if_an_id_changed(name: str, mapped: bool, run: Run, tmp_path: Path) -> None:
    model = finished_run(str(tmp_path / "model"), ("t",)).tables()
    chunk, query = model.read("chunks").to_pylist()[0], model.read("queries").to_pylist()[0]
    put(run, "chunks", pa.Table.from_pylist([chunk | {"chunk_id": name}], schema=CHUNKS.schema))
    put(run, "queries", pa.Table.from_pylist([query | {"query_id": "q"}], schema=QUERIES.schema))
    put(
        run,
        "qrels",
        QRELS.rows({"tenant": ["t"], "query_id": ["q"], "chunk_id": [name], "relevance": [1], "source": ["judge"]}),
    )
    export(run, "beir", tmp_path / "out")
    assert (tmp_path / "out" / "id_map.jsonl").exists() == mapped
