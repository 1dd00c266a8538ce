"""Tables in folders: the files hold what their folders name, and parts of the last run can be kept."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.artifacts import Output, Part, Run, Stage, Tables
from darklode.schemas.label_tables import QRELS
from darklode.schemas.tables import TRIPLETS
from helpers.runs import Work, execute
from helpers.staged import STAGE, qrels

MINED = Stage("mined", 1, (), ("triplets",))


def triplets(tenant: str, day: int, source: str, n: int = 2) -> pa.Table:
    empty: list[list[str]] = [[] for _ in range(n)]
    return TRIPLETS.rows(
        {
            "triplet_id": [f"{tenant}{day}{source}{number}" for number in range(n)],
            "tenant": [tenant] * n,
            "query_id": ["q"] * n,
            "query": ["a query"] * n,
            "positive_id": [f"d{number}" for number in range(n)],
            "positive": ["a text"] * n,
            "negative_ids": empty,
            "negatives": empty,
            "negative_scores": empty,
            "source": [source] * n,
            "date": pa.array([date(2026, 3, day)] * n),
            "split": ["train"] * n,
        }
    )


PLACES = [("a/b", 1, "click_one_hop"), ("a/b", 2, "click_one_hop"), ("ü", 1, "relevance_one_hop")]
FOLDERS = [
    "tenant-a%2Fb/date-2026-03-01/source-click_one_hop",
    "tenant-a%2Fb/date-2026-03-02/source-click_one_hop",
    "tenant-%C3%BC/date-2026-03-01/source-relevance_one_hop",
]


def write_all(_tables: Tables, output: Output) -> None:
    for place, folder in zip(PLACES, FOLDERS, strict=True):
        output.write("triplets", triplets(*place), folder)
        output.write("triplets", triplets(*place, 3), folder)


def rows_of(tables: pa.Table) -> list[dict[str, object]]:
    return sorted(tables.to_pylist(), key=str)


EVERYTHING = rows_of(pa.concat_tables([triplets(*place, n) for place in PLACES for n in (2, 3)]))


# folders that name values


def test_files_hold_the_columns_that_their_folders_name(run: Run) -> None:
    parts = execute(run, MINED, write_all).outputs["triplets"]
    assert [part.file.rpartition("/")[0] for part in parts] == [f"tables/triplets/{f}" for f in FOLDERS for _ in "ab"]
    assert [part.file.rpartition("/")[2][:12] for part in parts] == ["mined-00000-", "mined-00001-"] * 3
    for part in parts:
        with pa.BufferReader(run.store.read(part.file) or b"") as data:
            names = pq.read_schema(data).names
        assert names == TRIPLETS.schema.names


@pytest.mark.parametrize("folder", [FOLDERS[1], FOLDERS[2], "tenant-other"])
def test_rows_of_another_folder_are_refused(run: Run, folder: str) -> None:
    rows = pa.concat_tables([triplets(*PLACES[0]), triplets(*PLACES[0])])

    def packed(_tables: Tables, output: Output) -> None:
        with output.packed_writer("triplets", folder) as take:
            take(rows, folder)

    for work in (lambda _, output: output.write("triplets", rows, folder), packed):
        with pytest.raises(ValueError, match=r"triplets: a row of \w+ .* was to be written to the folder"):
            execute(run, MINED, work)


@pytest.mark.parametrize(
    "read",
    [
        lambda tables: tables.read("triplets"),
        lambda tables: tables.sql("SELECT * FROM triplets"),
        lambda tables: pa.concat_tables(tables.batches("triplets", rows=4)),
    ],
    ids=["read", "sql", "batches"],
)
def test_reading_gives_all_columns(run: Run, read: Callable[[Tables], pa.Table]) -> None:
    execute(run, MINED, write_all)
    found = read(run.tables("triplets"))
    assert [(field.name, field.type) for field in found.schema] == [(f.name, f.type) for f in TRIPLETS.schema]
    assert rows_of(found) == EVERYTHING


def test_duckdb_reads_the_folders_without_us(run: Run) -> None:
    execute(run, MINED, write_all)
    pattern = Path(run.store.url, "tables", "triplets", "**", "*.parquet")
    with duckdb.connect() as connection:
        query = "SELECT tenant, date, count(*) FROM read_parquet($name) GROUP BY ALL"
        found = connection.sql(query, params={"name": str(pattern)}).fetchall()
    assert sorted(found) == [("a/b", date(2026, 3, 1), 5), ("a/b", date(2026, 3, 2), 5), ("ü", date(2026, 3, 1), 5)]


def test_a_folder_without_a_key_keeps_all_columns(run: Run) -> None:
    execute(run, STAGE, lambda _, output: output.write("qrels", qrels("q"), "2026-03-01"))
    tables = run.tables("qrels")
    (part,) = tables.parts("qrels")
    assert part.file.startswith("tables/qrels/2026-03-01/judge-00000-")
    assert tables.part(part).schema.names == QRELS.schema.names
    assert tables.sql("SELECT * FROM qrels ORDER BY chunk_id").to_pylist() == qrels("q").to_pylist()


def test_a_unit_in_partitions_is_taken_over_and_tidied(run: Run) -> None:
    def work(days: list[int]) -> Work:
        def write(_tables: Tables, output: Output) -> None:
            for day in days:
                with output.unit(str(day), str(day)) as unit:
                    if not unit.done:
                        worked.append(day)
                        output.write("triplets", triplets("t", day, "s"), f"tenant-t/date-2026-03-0{day}/source-s")

        return write

    worked: list[int] = []
    execute(run, MINED, work([1, 2]))
    execute(run, MINED, work([2, 3]))
    assert worked == [1, 2, 3]
    days = run.tables("triplets").sql("SELECT DISTINCT date FROM triplets ORDER BY date")["date"].to_pylist()
    assert days == [date(2026, 3, 2), date(2026, 3, 3)]
    assert set(run.store.sizes("tables/triplets", recursive=True)) == {p.file for p in run.parts()["triplets"]}


# parts of the last complete run


def keeping(kept: list[Part], fresh: dict[str, str]) -> Work:
    def work(_tables: Tables, output: Output) -> None:
        for part in kept:
            output.reuse_part("qrels", part)
        for folder, query in fresh.items():
            output.write("qrels", qrels(query), folder)

    return work


def test_kept_parts_stay_as_they_are_and_others_go(run: Run) -> None:
    first = execute(run, STAGE, keeping([], {"one": "q1", "two": "q2", "three": "q3"})).outputs["qrels"]
    files = {part.file: run.store.read(part.file) for part in first}
    second = execute(run, STAGE, keeping([first[0], first[2]], {"one": "q4", "four": "q5"})).outputs["qrels"]
    assert second[:2] == [first[0], first[2]]
    assert [part.file.split("/")[2:][0] for part in second[2:]] == ["one", "four"]
    assert [part.file.split("-")[1] for part in second[2:]] == ["00001", "00000"]
    assert all(run.store.read(part.file) == files[part.file] for part in second[:2])
    assert set(run.store.sizes("tables/qrels", recursive=True)) == {part.file for part in second}
    found = run.tables("qrels").sql("SELECT DISTINCT query_id FROM qrels ORDER BY query_id")["query_id"].to_pylist()
    assert found == ["q1", "q3", "q4", "q5"]
    assert run.plan(STAGE, {}).is_up_to_date


@pytest.mark.parametrize("how", ["complete", "never run", "deleted", "truncated"])
def test_the_last_run_is_there_while_it_is_whole(run: Run, how: str) -> None:
    seen: list[Tables | None] = []
    facts: list[object] = []

    def look(_tables: Tables, output: Output) -> None:
        seen.append(output.previous_tables("qrels", "pool"))
        facts.append(output.earlier_facts.get("noted"))

    def note(_tables: Tables, output: Output) -> None:
        keeping([], {"one": "q1", "two": "q2"})(_tables, output)
        output.facts["noted"] = "then"

    if how != "never run":
        file = execute(run, STAGE, note).outputs["qrels"][1].file
        if how == "deleted":
            run.store.delete(file)
        elif how == "truncated":
            run.store.write(file, (run.store.read(file) or b"")[:-1])
    execute(run, STAGE, look)
    (earlier,) = seen
    assert facts == [None if how == "never run" else "then"]
    assert (earlier is None) == (how != "complete")
    if earlier:
        assert (earlier.rows("qrels"), earlier.rows("pool")) == (6, 0)


# some of a table, and none of it


def test_some_parts_of_one_table_beside_all_of_another(run: Run) -> None:
    execute(run, STAGE, keeping([], {"one": "q1", "two": "q2"}))
    execute(run, MINED, write_all)
    whole = run.tables("qrels", "triplets")
    some = whole.with_parts("qrels", whole.parts("qrels")[1:])
    assert (some.rows("qrels"), some.rows("triplets"), whole.rows("qrels")) == (3, 15, 6)
    assert some.sql("SELECT DISTINCT query_id FROM qrels")["query_id"].to_pylist() == ["q2"]
    none = whole.with_parts("triplets", [])
    assert none.read("triplets").schema.equals(TRIPLETS.schema)
    assert none.sql("SELECT count(*) AS n FROM triplets")["n"].to_pylist() == [0]
    assert ("qrels" in some, "pool" in some) == (True, False)


def test_tables_without_rows_have_their_columns() -> None:
    nothing = Tables.empty("qrels", "triplets")
    assert ("qrels" in nothing, "pool" in nothing) == (True, False)
    assert (nothing.rows("triplets"), nothing.parts("qrels")) == (0, [])
    assert nothing.read("triplets").schema.equals(TRIPLETS.schema)
    assert nothing.sql("SELECT * FROM triplets").column_names == TRIPLETS.schema.names


def test_a_parts_footer_is_that_of_its_file(run: Run) -> None:
    execute(run, STAGE, keeping([], {"one": "q1"}))
    tables = run.tables("qrels")
    footer = tables.footer(tables.parts("qrels")[0])
    place = footer.schema.to_arrow_schema().get_field_index("query_id")
    assert footer.num_rows == 3
    assert footer.row_group(0).column(place).statistics.min == "q1"
