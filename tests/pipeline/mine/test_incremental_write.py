"""Changes that lie beside a day's files: every reader sees one table, and once the days are written anew, the same."""

import random
import re
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import darklode.pipeline.mine.incremental_write
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import query, views_sql
from darklode.schemas.tables import TABLES, TRIPLETS
from helpers.repeats import mostly_slow
from helpers.runs import REPOSITORY
from helpers.small_log import FIRST, Search, mine, random_log

TABLES_OF_PAIRS = ("mined_pairs", "triplets")


@pytest.fixture(autouse=True)
def _small_days_are_big(monkeypatch: pytest.MonkeyPatch) -> None:
    """Days of a small log are treated as those of a big one."""
    monkeypatch.setattr(darklode.pipeline.mine.incremental_write, "MIN_PATCHED_DAY_ROWS", 1)


def in_order(rows: pa.Table) -> list[dict[str, object]]:
    return sorted(rows.to_pylist(), key=repr)


def by_views(run: Run, table: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute(views_sql(run))
        return connection.sql(f"FROM {table}").to_arrow_table()


def by_the_page(run: Run) -> pa.Table:
    """As docs/guides/mine.md says how to read the files without Darklode."""
    page = (REPOSITORY / "docs" / "guides" / "mine.md").read_text(encoding="utf-8")
    (block,) = re.findall(r'duckdb\.sql\("""(.+?)"""\)', page, re.DOTALL)
    return duckdb.sql(block.replace("runs/clicks", run.store.url)).to_arrow_table()


def files(run: Run, *tables: str) -> dict[str, bytes | None]:
    names = [name for table in tables for name in run.store.sizes(f"tables/{table}", recursive=True)]
    return {name: run.store.read(name) for name in names}


def beside(run: Run) -> dict[str, int]:
    """Rows of the patches."""
    names = [name for table in TABLES_OF_PAIRS for name in TABLES[table].files[1:]]
    return {name: run.tables(name).rows(name) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("number", mostly_slow(range(3), fast=1))
def test_every_reader_sees_the_rows_of_one_run(tmp_path: Path, number: int) -> None:
    log = random_log(200 + number)
    once, nightly = Run(str(tmp_path / "once")), Run(str(tmp_path / "nightly"))
    mine(once, log)
    order = list(log)
    random.Random(number).shuffle(order)
    for seen in range(1, len(order) + 1):
        mine(nightly, {day: log[day] for day in order[:seen]}, patch_share=0.7)
    assert min(beside(nightly).values()) > 0
    for table in TABLES_OF_PAIRS:
        tables, whole = nightly.tables(table), in_order(once.tables(table).read(table))
        assert in_order(tables.read(table)) == whole
        assert in_order(pa.concat_tables(tables.batches(table, rows=7))) == whole
        assert in_order(query(nightly, f"FROM {table}")) == whole
        assert in_order(by_views(nightly, table)) == whole
        assert tables.rows(table) == len(whole)
    assert in_order(by_the_page(nightly).select(TRIPLETS.schema.names)) == in_order(
        once.tables("triplets").read("triplets")
    )
    mine(nightly, log, patch_share=0)
    assert set(beside(nightly).values()) == {0}
    assert files(nightly, *TABLES_OF_PAIRS) == files(once, *TABLES_OF_PAIRS)
    assert nightly.store.local is not None
    folder = pads.dataset(nightly.store.local / "tables" / "triplets")
    assert folder.count_rows() == once.tables("triplets").rows("triplets")


def search(day: int, query: str, *clicked: int) -> Search:
    return Search("default", f"s{day} {query}", day, query, ("d1", "d2", "d3"), frozenset(clicked))


@pytest.mark.slow
def test_a_day_keeps_its_files_until_its_share_has_changed(run: Run) -> None:
    queries = [f"zz{number}" for number in range(12)]
    log = {FIRST: [search(1, one, 1) for one in queries]}

    def night(number: int, *again: str) -> dict[str, bytes | None]:
        log[FIRST + timedelta(number)] = [search(number + 1, query, 2, 3) for query in again]
        mine(run, log, patch_share=0.5)
        return {name: data for name, data in files(run, *TABLES_OF_PAIRS).items() if FIRST.isoformat() in name}

    own = night(1)
    assert len(own) >= len(TABLES_OF_PAIRS)
    assert night(2, *queries[:2]) == own
    assert min(beside(run).values()) > 0
    assert night(3, *queries[2:10]) != own
    assert set(beside(run).values()) == {0}
