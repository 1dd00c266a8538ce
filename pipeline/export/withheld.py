"""A run's tables without the labels of its test split, or with no others: for a benchmark that is scored blind."""

import duckdb

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.export.kinds import Format
from darklode.pipeline.export.writing import require

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


def public_and_withheld(run: Run, format: str, kind: Format) -> tuple[Tables, Tables]:
    """The tables of which to make the folder to publish, and those for the folder to keep.

    Args:
        run: a run that has the tables.
        format: the format's name.
        kind: what it is made of.

    Raises:
        ExportError: the format has no labels of the test split, or one of the two folders would have no positive.
    """
    if not kind.test_labels:
        raise ExportError(f"{format} holds no labels of the test split; leave --withhold-test out")
    names = kind.tables
    public, withheld = SplitTables(run, names, test=False), SplitTables(run, names, test=True)
    for tables, where in ((public, "outside its test split, to publish"), (withheld, "in its test split, to withhold")):
        require(tables, "qrels", "relevance > 0", f"the run has no positive {where}; leave --withhold-test out")
    return public, withheld
