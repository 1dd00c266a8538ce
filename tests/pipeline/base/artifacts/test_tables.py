"""Reading a run: in the order written, by pieces, and through DuckDB, whatever the folder is called."""

import itertools
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.label_tables import QRELS
from darklode.schemas.tables import QUERIES
from helpers.runs import put
from helpers.staged import build

STAGE = Stage("judge", 1, (), ("qrels",))


def numbered(sizes: list[int]) -> list[pa.Table]:
    """Parts of qrels whose relevance counts on from 0."""
    starts = [0, *itertools.accumulate(sizes)]
    return [
        QRELS.rows(
            {name: ["x"] * size for name in ("tenant", "query_id", "chunk_id", "source")}
            | {"relevance": range(at, at + size)}
        )
        for at, size in zip(starts, sizes, strict=False)
    ]


def filled(run: Run, sizes: list[int]) -> Tables:
    def work(_tables: Tables, output: Output) -> None:
        for rows in numbered(sizes):
            output.write("qrels", rows)

    run.execute(run.plan(STAGE, {}), work)
    return run.tables("qrels")


SIZES = [5_000, 1, 70_000, 8_192, 3]
ROWS = sum(SIZES)


def test_rows_come_in_the_order_written(run: Run) -> None:
    tables = filled(run, SIZES)
    assert tables.rows("qrels") == ROWS
    assert tables.read("qrels")["relevance"].to_pylist() == list(range(ROWS))
    assert tables.read("qrels", ["relevance"]).column_names == ["relevance"]
    assert [tables.part(part).num_rows for part in tables.parts("qrels")] == SIZES


@pytest.mark.parametrize("rows", [1_000, 8_192, 1_000_000])
def test_batches_come_in_order_and_are_never_larger_than_asked(run: Run, rows: int) -> None:
    batches = list(filled(run, SIZES).batches("qrels", ["relevance"], rows))
    assert [value for batch in batches for value in batch["relevance"].to_pylist()] == list(range(ROWS))
    assert all(0 < batch.num_rows <= rows for batch in batches)
    assert len(batches) >= ROWS / rows


@pytest.mark.slow
def test_batches_take_no_more_memory_for_more_parts(run: Run) -> None:
    tables = filled(run, [20_000] * 80)
    before = pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() - before for _batch in tables.batches("qrels"))
    assert most < tables.read("qrels").nbytes / 4


def test_an_empty_table_has_no_batches_and_its_columns(run: Run) -> None:
    tables = filled(run, [])
    assert list(tables.batches("qrels")) == []
    assert tables.read("qrels").schema.equals(QRELS.schema)
    assert tables.sql("SELECT count(*) AS n FROM qrels")["n"].to_pylist() == [0]
    nothing = Tables(run.store, {"qrels": []})
    assert (nothing.rows("qrels"), nothing.read("qrels").num_rows) == (0, 0)
    assert nothing.sql("SELECT * FROM qrels").column_names == QRELS.schema.names


def test_sql_takes_parameters_and_sees_no_other_table(run: Run) -> None:
    put(run, "queries", QUERIES.empty())
    tables = filled(run, [10])
    found = tables.sql("SELECT relevance FROM qrels WHERE relevance >= ? AND chunk_id = ? ORDER BY 1", [8, "x"])
    assert found["relevance"].to_pylist() == [8, 9]
    with pytest.raises(duckdb.CatalogException, match="queries"):
        tables.sql("SELECT * FROM queries")


@pytest.mark.parametrize(
    "name",
    [
        "it's",
        'say "x"',
        "a b",
        "run[1]",
        "run*",
        "what?",
        "tenant=other",
        "tenant=other[1]",
        "100%",
        "back\\slash",
        "{a,b}",
        "$x; DROP VIEW qrels; --",
        "日本",
        "#1",
    ],
)
def test_any_folder_name_reads_its_own_run(tmp_path: Path, name: str) -> None:
    for decoy in ("run1", "runx", "whatx", "ax"):
        build(str(tmp_path / decoy), {"u": "mine"})
    run = Run(str(tmp_path / name))
    build(run.store.url, {"u": "mine"})
    tables = run.tables("qrels")
    found = tables.sql("SELECT tenant, query_id, count(*) AS n FROM qrels GROUP BY ALL ORDER BY query_id").to_pylist()
    assert found == [{"tenant": "t", "query_id": f"mine {part}", "n": n} for part, n in (("a", 3), ("b", 5))]
    assert tables.read("qrels")["query_id"].unique().to_pylist() == ["mine a", "mine b"]
    assert tables.read("qrels")["tenant"].unique().to_pylist() == ["t"]


@pytest.mark.parametrize("rows", [1, 7, 1_000, 50_000, ROWS, ROWS + 1])
def test_streams_are_cut_where_asked(run: Run, rows: int) -> None:
    wanted = 300 if rows < 10 else ROWS
    query = "SELECT relevance FROM qrels WHERE relevance < $wanted ORDER BY relevance"
    pieces = list(filled(run, SIZES).stream(query, {"wanted": wanted}, rows))
    assert [value for piece in pieces for value in piece["relevance"].to_pylist()] == list(range(wanted))
    assert [piece.num_rows for piece in pieces[:-1]] == [rows] * ((wanted - 1) // rows)


def test_streams_are_cut_alike_however_many_threads_there_are(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = filled(run, [200_000, 100_000])
    connect, sizes = duckdb.connect, []
    for threads in (1, 2, 5):
        monkeypatch.setattr(duckdb, "connect", lambda config, n=threads: connect(config=config | {"threads": n}))
        pieces = tables.stream("SELECT relevance FROM qrels ORDER BY relevance", {}, 140_000)
        sizes.append([piece.num_rows for piece in pieces])
    assert sizes == [[140_000, 140_000, 20_000]] * 3


def test_an_empty_answer_is_no_piece(run: Run) -> None:
    assert list(filled(run, [5]).stream("SELECT * FROM qrels WHERE relevance > 9", {}, 10)) == []


def test_nothing_is_left_in_the_temporary_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    tables = filled(run, [5])
    tables.sql("SELECT * FROM qrels ORDER BY relevance")
    with pytest.raises(duckdb.Error):
        tables.sql("SELECT nonsense FROM qrels")
    assert list(scratch.iterdir()) == []


def test_a_question_looks_into_the_tables_that_it_names_and_into_no_other(run: Run) -> None:
    put(run, "qrels", numbered([3])[0])
    put(run, "queries", QUERIES.empty())
    tables = run.tables()
    for part in tables.parts("queries"):
        run.store.delete(part.file)
    assert tables.sql("SELECT count(*) AS n FROM Qrels")["n"].to_pylist() == [3]
    assert [piece.num_rows for piece in tables.stream("FROM qrels ORDER BY relevance", {}, 2)] == [2, 1]
    with tables.open_local() as opened:
        assert [opened.sql("SELECT count(*) AS n FROM qrels")["n"].to_pylist() for _ in range(2)] == [[3], [3]]
        with pytest.raises(ArtifactError, match="is missing or damaged"):
            opened.sql("FROM queries")
