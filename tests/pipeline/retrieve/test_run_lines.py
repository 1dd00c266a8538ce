"""Lines of TREC run files: what each holds, and which query it names."""

from pathlib import Path

import duckdb
import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.retrieve.run_lines import LINES_WITH_QUERY_SQL, read_run_lines

QUERIES_SQL = (
    "CREATE TABLE asked AS SELECT * FROM (VALUES ('t', 'q1'), ('t', 'a b'), ('u', 'q1')) AS q(tenant, query_id)"
)


def lines_of(file: Path) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.execute(QUERIES_SQL)
        n_lines = read_run_lines(connection, file, "asked")
        found = connection.sql(
            f"SELECT line, query_id, tenant, owners, text, score, fault FROM ({LINES_WITH_QUERY_SQL})"
        )
        rows = sorted(found.fetchall())
        assert len(rows) == n_lines
        return rows


def test_each_line_names_its_query_or_its_fault(tmp_path: Path) -> None:
    (tmp_path / "engine.run").write_text(
        'a%20b Q0 "doc" 1 2.5 x\nt/q1\tQ0\tdoc 1 -.5 x\nq1 Q0 doc 1 1 x\nnone Q0 doc 1 1e3 x\n\nt/q1 Q0 doc 1 nan x\n'
    )
    assert lines_of(tmp_path / "engine.run") == [
        (1, "a b", "t", 1, '"doc"', 2.5, None),
        (2, "q1", "t", 1, "doc", -0.5, None),
        (3, "q1", "t", 2, "doc", 1.0, None),
        (4, None, None, 0, "doc", 1000.0, None),
        (5, None, None, 0, "", None, "not 6 fields"),
        (6, "q1", "t", 1, "doc", None, "score is not a number"),
    ]


def test_an_empty_file_has_no_lines_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.run").touch()
    assert lines_of(tmp_path / "empty.run") == []
    with pytest.raises(InputError, match=r"the run file .*nowhere cannot be read"):
        lines_of(tmp_path / "nowhere")
