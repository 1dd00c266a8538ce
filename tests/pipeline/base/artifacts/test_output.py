"""What a stage writes: its own tables in their schema, in parts whose names and bytes follow from the rows."""

import hashlib
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import FunnelStep, Output, Run, Stage, Tables, key_of
from darklode.pipeline.base.artifacts.parquet_writer import encode
from darklode.schemas.label_tables import QRELS
from darklode.schemas.table import SCHEMA_VERSION
from darklode.schemas.tables import QUERIES, TABLES
from helpers.runs import execute, read
from helpers.staged import STAGE, UNITS, build, fail, qrels, state


def test_parts_are_named_by_stage_number_and_content(run: Run) -> None:
    def work(_tables: Tables, output: Output) -> None:
        output.write("qrels", qrels("q1"))
        output.write("qrels", QRELS.empty())
        output.write("qrels", qrels("q2", 7))

    parts = execute(run, STAGE, work).outputs["qrels"]
    data = [run.store.read(part.file) or b"" for part in parts]
    assert [hashlib.sha256(content).hexdigest() for content in data] == [part.sha256 for part in parts]
    assert [part.file for part in parts] == [
        f"tables/qrels/judge-{number:05d}-{part.sha256[:8]}.parquet" for number, part in enumerate(parts)
    ]
    assert [(part.rows, part.size) for part in parts] == [(3, len(data[0])), (7, len(data[1]))]
    assert [row["query_id"] for row in read(run, "qrels")] == ["q1"] * 3 + ["q2"] * 7


def test_bytes_depend_on_rows_alone() -> None:
    whole = pa.concat_tables([qrels("a"), qrels("b")]).combine_chunks()
    pieces = pa.concat_tables([qrels("a").slice(0, 1), qrels("a").slice(1), qrels("b")])
    assert encode(whole) == encode(pieces) == encode(pa.concat_tables([qrels("x"), whole]).slice(3))
    assert encode(whole) != encode(qrels("a"))


def test_an_answer_is_cut_the_same_way_however_duckdb_gives_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darklode.pipeline.base.artifacts.output.RESULT_ROWS", 4)
    every = pa.concat_tables([qrels("q1"), qrels("q2", 7)])

    def work(_tables: Tables, output: Output) -> None:
        with duckdb.connect() as connection:
            connection.register("every", every)
            output.write_answer("qrels", connection, "FROM every WHERE query_id = $q ORDER BY ALL", {"q": "q2"})

    assert [part.rows for part in execute(run, STAGE, work).outputs["qrels"]] == [4, 3]
    assert read(run, "qrels") == sorted(qrels("q2", 7).to_pylist(), key=repr)


@pytest.mark.parametrize(
    ("table", "rows", "message"),
    [
        ("queries", QUERIES.empty(), "stage judge does not declare the table queries"),
        ("qrels", qrels("q").drop(["relevance"]), "rows do not have the schema of qrels"),
        ("qrels", qrels("q").cast(QRELS.schema.set(3, pa.field("relevance", pa.int64()))), "schema"),
        ("qrels", qrels("q").select(["query_id", "tenant", "chunk_id", "relevance"]), "schema"),
    ],
)
def test_what_was_not_agreed_is_refused(run: Run, table: str, rows: pa.Table, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        execute(run, STAGE, lambda _, output: output.write(table, rows))
    assert run.manifests() == {}


def test_a_null_where_none_may_be_is_refused(run: Run) -> None:
    rows = pa.Table.from_arrays([pa.array([None], field.type) for field in QRELS.schema], schema=QRELS.schema)
    with pytest.raises(pa.ArrowInvalid, match="null"):
        execute(run, STAGE, lambda _, output: output.write("qrels", rows))


def test_a_reject_needs_no_declaration_and_says_who_dropped_it(run: Run) -> None:
    columns = {"id": ["a", "b"], "reason": ["torn", "empty"]}
    manifest = execute(run, STAGE, lambda _, output: output.reject("judge.parse", "qrels", columns))
    assert manifest.rows("rejects") == 2
    assert [(row["stage"], row["table"], row["id"], row["reason"]) for row in read(run, "rejects")] == [
        ("judge.parse", "qrels", "a", "torn"),
        ("judge.parse", "qrels", "b", "empty"),
    ]


def test_an_empty_table_opens_by_its_pattern(run: Run) -> None:
    stage = Stage("both", 1, (), ("qrels", "queries"))
    manifest = execute(run, stage, lambda _, output: output.write("qrels", qrels("q")))
    assert (manifest.rows("qrels"), manifest.rows("queries"), "rejects" in manifest.outputs) == (3, 0, False)
    pattern = Path(run.store.url, "tables", "queries", "*.parquet")
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT * FROM read_parquet('{pattern}')").to_arrow_table()
    assert (found.column_names, found.num_rows) == (QUERIES.schema.names, 0)
    assert run.tables("queries").read("queries").schema.equals(QUERIES.schema)


def test_facts_funnel_and_progress_reach_those_who_ask(run: Run) -> None:
    told = []

    def work(_tables: Tables, output: Output) -> None:
        output.facts["caveat"] = "é"
        output.progress(1)
        output.progress(2, 5, "slow")
        output.count(FunnelStep("judge", "pairs", 5, "pairs", 3, {"torn": 2}))

    run.execute(run.plan(STAGE, {}), work, lambda *said: told.append(said))
    manifest = run.manifest(STAGE)
    assert manifest is not None
    assert told == [(1, None, ""), (2, 5, "slow")]
    assert manifest.facts == {"caveat": "é"}
    assert manifest.funnel == [FunnelStep("judge", "pairs", 5, "pairs", 3, {"torn": 2})]


def test_a_finished_unit_is_not_worked_on_again(run: Run) -> None:
    with pytest.raises(RuntimeError):
        build(run.store.url, stop_at="u3", stop=fail)
    assert build(run.store.url) == ["u3", "u4"]
    assert build(run.store.url) == []


def test_a_unit_whose_basis_changed_is_redone_alone_and_files_are_those_of_a_fresh_run(
    run: Run, tmp_path: Path
) -> None:
    build(run.store.url)
    changed = UNITS | {"u1": "another basis"}
    assert build(run.store.url, changed) == ["u1"]
    build(str(tmp_path / "fresh"), changed)
    assert state(run) == state(Run(str(tmp_path / "fresh")))


@pytest.mark.parametrize(
    "order",
    [("u3", "u0", "u4", "u1", "u2"), ("u2", "u3"), ("new", "u0", "u1", "u2", "u3", "u4"), ("u0", "new", "u4"), ()],
)
def test_units_in_another_place_are_renumbered(run: Run, tmp_path: Path, order: tuple[str, ...]) -> None:
    build(run.store.url)
    units = {name: UNITS.get(name, "a new basis") for name in order}
    assert build(run.store.url, units) == [name for name in order if name == "new"]
    build(str(tmp_path / "fresh"), units)
    assert state(run) == state(Run(str(tmp_path / "fresh")))


def test_renumbered_units_survive_an_exception(run: Run, tmp_path: Path) -> None:
    build(run.store.url)
    units = {"new": "first", **UNITS, "last": "last"}
    with pytest.raises(RuntimeError):
        build(run.store.url, units, stop_at="last", stop=fail)
    assert build(run.store.url, units) == ["last"]
    build(str(tmp_path / "fresh"), units)
    assert state(run) == state(Run(str(tmp_path / "fresh")))


def spoil(run: Run, file: str, how: str) -> None:
    data = run.store.read(file) or b""
    if how == "deleted":
        run.store.delete(file)
    else:
        run.store.write(file, data[:-1] if how == "truncated" else data[:99] + bytes([data[99] ^ 1]) + data[100:])


@pytest.mark.parametrize("how", ["deleted", "truncated", "altered"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_unit_with_a_damaged_part_is_redone_and_the_part_mended(
    run: Run, tmp_path: Path, how: str, number: int
) -> None:
    build(run.store.url)
    parts = run.parts()["qrels"]
    spoil(run, parts[2 * 2 + number].file, how)
    assert build(run.store.url) == ["u2"]
    build(str(tmp_path / "fresh"))
    assert state(run) == state(Run(str(tmp_path / "fresh")))


@pytest.mark.parametrize("how", ["deleted", "truncated", "altered"])
def test_a_part_damaged_before_the_stage_was_complete_is_mended(run: Run, tmp_path: Path, how: str) -> None:
    with pytest.raises(RuntimeError):
        build(run.store.url, stop_at="u3", stop=fail)
    spoil(run, sorted(run.store.sizes("tables/qrels"))[1], how)
    assert build(run.store.url) == ["u0", "u3", "u4"]
    build(str(tmp_path / "fresh"))
    assert state(run) == state(Run(str(tmp_path / "fresh")))


def test_facts_of_a_unit_are_kept_with_it(run: Run) -> None:
    build(run.store.url)
    build(run.store.url, UNITS | {"u4": "changed"})
    manifest = run.manifest(STAGE)
    assert manifest is not None
    assert manifest.facts == UNITS | {"u4": "changed"}


def test_what_an_earlier_version_wrote_in_other_columns_is_not_taken_up(run: Run) -> None:
    execute(run, STAGE, lambda _tables, output: output.write("qrels", qrels("q1")))
    found: list[Tables | None] = []

    def look(_tables: Tables, output: Output) -> None:
        found.append(output.previous_tables("qrels"))
        wider = replace(QRELS, schema=QRELS.schema.append(pa.field("since", pa.date32())))
        with patch.dict(TABLES, {"qrels": wider}):
            found.append(output.previous_tables("qrels"))

    execute(run, STAGE, look)
    assert [one is None for one in found] == [False, True]


def test_the_key_of_a_unit_is_the_hash_of_all_that_it_depends_on(run: Run) -> None:
    plan = run.plan(Stage("work", 3, (), ("qrels",)), {"b": ["ä", 1], "a": None})
    output = Output(run.store, plan, None, lambda *_: None)
    assert output.unit_key("2026-03-01", "ü") == key_of(SCHEMA_VERSION, "work", 3, plan.shaping, "2026-03-01", "ü")
