"""A run's tables without the labels of its test split, or with no others: for a benchmark that is scored blind."""

import duckdb

from pipeline.artifacts import Run, Tables
from pipeline.errors import ExportError
from pipeline.export.writing import require

WITHHOLDABLE = ("beir", "trec", "mteb", "msmarco")
"""The formats that hold labels of the test split."""

_HIDDEN = ("qrels", "rankings")  # rankings too: they name what was pooled, and every positive is of the pool

_TEST = """
    CREATE OR REPLACE VIEW test_queries AS SELECT tenant, query_id FROM queries_by_split WHERE split = 'test'
"""


class SplitTables(Tables):
    """Tables of a run whose labels and rankings are those of the test queries only, or of all but them."""

    def __init__(self, run: Run, names: tuple[str, ...], test: bool) -> None:
        parts = run.parts()
        super().__init__(run.store, {name: parts[name] for name in names})
        self._join = "SEMI" if test else "ANTI"

    def view(self, connection: duckdb.DuckDBPyConnection, name: str, table: str) -> None:
        """Make one of the tables a view of the connection; of labels and rankings, the rows that are not hidden."""
        if table not in _HIDDEN:
            super().view(connection, name, table)
            return
        super().view(connection, "queries_by_split", "queries")
        connection.execute(_TEST)
        super().view(connection, f"{name}_of_all", table)
        rows = f"FROM {name}_of_all {self._join} JOIN test_queries USING (tenant, query_id)"
        connection.execute(f'CREATE OR REPLACE VIEW "{name}" AS {rows}')


def public_and_withheld(run: Run, format: str, names: tuple[str, ...]) -> tuple[Tables, Tables]:
    """The tables of which to make the folder to publish, and those for the folder to keep.

    Args:
        run: a run that has the tables.
        format: one of `WITHHOLDABLE`.
        names: the tables that the format is made of.

    Raises:
        ExportError: the format has no labels of the test split, or one of the two folders would have no positive.
    """
    if format not in WITHHOLDABLE:
        whose = ", ".join(WITHHOLDABLE)
        raise ExportError(f"{format} holds no labels of the test split ({whose} do); leave --withhold-test out")
    public, withheld = SplitTables(run, names, test=False), SplitTables(run, names, test=True)
    for tables, where in ((public, "outside its test split, to publish"), (withheld, "in its test split, to withhold")):
        require(tables, "qrels", "relevance > 0", f"the run has no positive {where}; leave --withhold-test out")
    return public, withheld
