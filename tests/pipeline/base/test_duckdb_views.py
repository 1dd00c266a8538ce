import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.base.duckdb_views import query, views_sql
from darklode.pipeline.base.errors import ArtifactError, DarklodeError, InputError
from darklode.schemas.tables import TABLES
from helpers.finished_run import CHUNK_IDS, TENANTS, finished_run
from helpers.runs import put

NAMES = ["run", "it's [a] run, *?", 'q"; DROP VIEW x; --', "two\nlines", "{a,b}", "naïve ☃"]


def described(sql: str) -> dict[str, list[tuple[str, str]]]:
    with duckdb.connect() as connection:
        connection.execute(sql)
        return {table: [row[:2] for row in connection.execute(f"DESCRIBE {table}").fetchall()] for table in TABLES}


def counted(sql: str, then: str = "SELECT 1") -> tuple[int, int]:
    with duckdb.connect() as connection:
        connection.execute(sql)
        connection.execute(then)
        tables = connection.execute("SELECT (SELECT count(*) FROM chunks), (SELECT count(*) FROM rejects)").fetchall()
        return (tables[0][0], tables[0][1])


@pytest.mark.parametrize("name", NAMES)
def test_the_views_open_from_any_directory_whatever_the_run_is_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = views_sql(finished_run(str(tmp_path / name)))
    monkeypatch.chdir("/")
    assert counted(sql) == (len(TENANTS) * len(CHUNK_IDS), 0)


def test_a_folder_named_like_a_partition_gives_no_column(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(views_sql(finished_run(str(tmp_path / "tenant=x" / "run"))))
        tenants = connection.execute("SELECT DISTINCT tenant FROM chunks ORDER BY tenant").fetchall()
    assert [tenant for (tenant,) in tenants] == sorted(TENANTS)


def test_views_of_tables_without_parts_have_the_same_columns(run: Run, tmp_path: Path) -> None:
    run.execute(run.plan(Stage("all", 1, (), tuple(TABLES)), {}), lambda _tables, _output: None)
    assert described(views_sql(run)) == described(views_sql(Run(str(tmp_path / "nothing yet"))))


def test_a_moved_run_needs_one_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = views_sql(finished_run(str(tmp_path / "run")))
    shutil.move(tmp_path / "run", tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    head, rest = sql.split("CREATE OR REPLACE MACRO run_folder() AS ", 1)
    assert counted(f"{head}CREATE OR REPLACE MACRO run_folder() AS '.';{rest.split(';', 1)[1]}") == (8, 0)


def test_views_kept_in_a_database_can_follow_the_run(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "kept.duckdb") as kept:
        kept.execute(views_sql(finished_run(str(tmp_path / "run"))))
    shutil.move(tmp_path / "run", tmp_path / "moved")
    with duckdb.connect(tmp_path / "kept.duckdb") as kept:
        with pytest.raises(duckdb.IOException):
            kept.execute("FROM chunks").fetchall()
        kept.execute(f"CREATE OR REPLACE MACRO run_folder() AS '{tmp_path / 'moved'}'")
        assert len(kept.execute("FROM chunks").fetchall()) == 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds one run, `it's a run`: no query can change it."""
    folder = tmp_path_factory.mktemp("views")
    query(finished_run(str(folder / "it's a run")), "SHOW TABLES")  # verifies the files, which leaves their stamps
    return folder


@pytest.fixture
def finished(folder: Path) -> Run:
    return Run(str(folder / "it's a run"))


def test_a_query_sees_every_table(finished: Run, tmp_path: Path) -> None:
    assert query(finished, "SELECT count(*) AS n FROM chunks")["n"].to_pylist() == [8]
    assert query(finished, "FROM rejects").num_rows == 0
    assert query(finished, "SHOW TABLES")["name"].to_pylist() == sorted(TABLES)
    assert query(finished, "WITH q AS (FROM queries) SELECT split FROM q -- the end").num_rows == 8
    assert query(Run(str(tmp_path / "nothing yet")), "FROM funnel").num_rows == 0


def test_columns_of_the_same_name_keep_their_values(finished: Run) -> None:
    sql = "SELECT * FROM (VALUES (1), (2)) a(n) JOIN (VALUES (1, 'x'), (2, 'y')) b(n, s) ON a.n = b.n ORDER BY a.n DESC"
    assert query(finished, sql).to_pylist() == [{"n": 2, "n_1": 2, "s": "y"}, {"n": 1, "n_1": 1, "s": "x"}]


def test_a_query_sees_complete_stages_only(run: Run) -> None:
    put(run, "qrels", TABLES["qrels"].empty())
    run.store.write("tables/qrels/judge-00000-half.parquet", b"half")
    assert query(run, "FROM qrels").num_rows == 0


@pytest.mark.parametrize("sql", ["SELEC 1", "SELECT no_such FROM chunks", "SELECT 1/'x'"])
def test_a_wrong_query_says_why(sql: str, finished: Run) -> None:
    with pytest.raises(DarklodeError, match="Error") as raised:
        query(finished, sql)
    assert "Tables of this run" not in str(raised.value)


def test_an_unknown_table_is_answered_with_the_tables_of_the_run_alone(finished: Run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Tables of this run: documents, chunks, ") as raised:
        query(finished, "FROM no_such")
    named = str(raised.value).rpartition("Tables of this run: ")[2].split(", ")
    assert set(named) == set(finished.parts()) & set(TABLES)
    with pytest.raises(InputError, match="This run has no table yet"):
        query(Run(str(tmp_path / "nothing yet")), "FROM no_such")


OUTSIDE = [
    "FROM read_text('/etc/passwd')",
    "FROM read_csv('/etc/passwd')",
    "FROM '/etc/passwd'",
    "FROM glob('/*')",
    "FROM read_text('{run}/manifests/chunk.json')",
    "FROM read_parquet('{run}/tables/chunks/*.parquet')",
    "FROM secret",
    "FROM read_parquet('https://127.0.0.1:9/x.parquet')",
]

WRITES = [
    "COPY (SELECT 1) TO '{run}/../out.csv'",
    "COPY (SELECT 1 AS a) TO '{part}' (FORMAT parquet, USE_TMP_FILE false)",
    "SELECT 1; COPY (SELECT 1 AS a) TO '{part}' (FORMAT parquet, USE_TMP_FILE false)",
    "EXPLAIN ANALYZE COPY (SELECT 1 AS a) TO '{part}' (FORMAT parquet, USE_TMP_FILE false)",
    "EXPORT DATABASE '{run}/../out'",
    "ATTACH '{run}/../out.duckdb'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "CREATE SECRET (TYPE s3)",
    "CREATE TABLE x AS SELECT 1",
    "DROP VIEW chunks",
    "PRAGMA database_list",
    "",
    "-- nothing",
]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def filled(sql: str, run: Run) -> str:
    """The query with the run's folder and the path of one of its parts, as SQL strings need them."""
    part = run.store.path(run.parts()["chunks"][0].file)
    return sql.format(run=run.store.url.replace("'", "''"), part=part.replace("'", "''"))


@pytest.mark.parametrize("sql", OUTSIDE)
def test_a_query_reads_nothing_outside_the_tables(sql: str, finished: Run) -> None:
    secret = pa.table({"a": [1]})
    with pytest.raises(InputError, match=r"Permission|Catalog|disabled"):
        query(finished, filled(sql, finished))
    assert secret.num_rows == 1


@pytest.mark.parametrize("sql", WRITES)
def test_a_query_writes_nothing(sql: str, finished: Run, folder: Path) -> None:
    before = files(folder)
    with pytest.raises(InputError, match="one SELECT"):
        query(finished, filled(sql, finished))
    assert files(folder) == before


def test_the_connection_is_locked_too(finished: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a statement slip through as a SELECT, files, extensions and settings are still closed."""
    monkeypatch.setattr("darklode.pipeline.base.duckdb_views._select", lambda _connection, sql: sql)
    before = files(folder)
    for sql in (WRITES[0], *WRITES[4:10]):
        with pytest.raises(InputError, match=r"Permission|locked|disabled"):
            query(finished, filled(sql, finished))
    assert files(folder) == before


def test_a_table_of_another_version_is_named(tmp_path: Path) -> None:
    run = finished_run(str(tmp_path / "run"))
    (file,) = (tmp_path / "run" / "tables" / "qrels").iterdir()
    pq.write_table(pq.read_table(file).drop_columns(["source"]), file)
    (writer,) = (manifest for manifest in run.manifests().values() if "qrels" in manifest.outputs)
    (part,) = writer.outputs["qrels"]
    theirs = replace(part, size=file.stat().st_size, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
    outputs = writer.outputs | {"qrels": [theirs]}
    run.store.write(f"manifests/{writer.stage}.json", replace(writer, outputs=outputs).to_json())
    with pytest.raises(ArtifactError, match=r"the table qrels of .*/run was written by another version of Darklode"):
        query(run, "SELECT count(*) FROM qrels")
