"""A run's tables in SQL, in all formats."""

import csv
import io
import json
import subprocess

import pytest

from helpers.commands import CONTROL, DARKLODE, Call, Environment, SampleRun

pytestmark = pytest.mark.server

JOIN = """
    SELECT t.triplet_id, v.relevant, min(r.rank) AS best, any_value(t.query) AS query
    FROM triplets t
    JOIN verdicts v ON (v.tenant, v.query_id, v.chunk_id) = (t.tenant, t.query_id, t.positive_id)
    JOIN rankings r ON (r.tenant, r.query_id, r.chunk_id) = (t.tenant, t.query_id, t.positive_id)
    GROUP BY ALL ORDER BY t.triplet_id LIMIT 5
"""


def test_a_join_in_all_formats(call: Call, sample_run: SampleRun) -> None:
    rows = json.loads(call("query", sample_run.folder, JOIN, "--format", "json").out)
    assert [len(rows), {row["relevant"] for row in rows}] == [5, {True}]
    assert all(1 <= row["best"] <= 60 for row in rows)
    text = call("query", sample_run.folder, JOIN, "--format", "csv").out
    assert list(csv.DictReader(io.StringIO(text))) == [{k: str(v) for k, v in row.items()} for row in rows]
    table = call("query", sample_run.folder, JOIN).out
    assert table.startswith("5 rows\ntriplet_id ")
    assert all(row["triplet_id"] in table for row in rows)


def test_a_query_prints_texts_as_they_are(call: Call, sample_run: SampleRun) -> None:
    hostile = "SELECT '[red]x[/red] [/] [bold' AS \"[/]\", chr(27) || '[31m' || chr(7) AS steering, 12345 AS n"
    shown = call("query", sample_run.folder, hostile)
    assert shown.code == 0
    assert "[red]x[/red] [/] [bold" in shown.out
    assert "12,345" in shown.out
    assert not CONTROL.search(shown.out)


@pytest.mark.slow
def test_a_reader_that_leaves_early_sees_no_traceback(sample_run: SampleRun, alone: Environment) -> None:
    for form in ("table", "csv"):
        command = [DARKLODE, "query", str(sample_run.folder), "FROM rankings LIMIT 5000", "--format", form]
        process = subprocess.Popen(command, env=alone, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout
        assert process.stderr
        process.stdout.read(100)
        process.stdout.close()
        said = process.stderr.read()
        process.stderr.close()
        assert (process.wait(30), said) == (0, b""), form


@pytest.mark.parametrize("sql", ["SELECT * FROM [red]", "SELECT nothing FROM triplets", "DROP VIEW triplets", "", "§"])
def test_an_sql_error_is_explained(call: Call, sample_run: SampleRun, sql: str) -> None:
    shown = call("query", sample_run.folder, sql)
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith("error: ")
    assert "Traceback" not in shown.err
    assert "law_points" not in shown.err, "a table that this run has not"
