"""From numbers back to names: rows of `associations`."""

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from schemas.mined_tables import ASSOCIATIONS

_TOPS = """
    SELECT tenant, query_id, terms
    FROM numbered_queries
    LEFT JOIN (SELECT q, list(t ORDER BY place) AS terms FROM placed_terms WHERE place <= 4 GROUP BY q) USING (q)
    ORDER BY q
"""


class Names:
    """What the numbers of `numbering` stand for, in memory: about 50 bytes a query and its four best terms' numbers."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        queries = connection.sql(_TOPS).to_arrow_table()
        self._tenants = queries["tenant"].combine_chunks().dictionary_encode()
        self._ids = queries["query_id"].cast(pa.large_string()).combine_chunks()
        self._tops = queries["terms"].combine_chunks()
        terms = connection.sql("SELECT term FROM numbered_terms ORDER BY t").to_arrow_table()
        self._terms = terms["term"].cast(pa.large_string()).combine_chunks()

    def rows(self, pairs: pa.Table) -> pa.Table:
        """Rows of `associations` for pairs of numbers (date, q, lender, kind, score)."""
        columns = {
            "tenant": self._tenants.take(pairs["q"]).cast(pa.string()),
            "query_id": self._ids.take(pairs["q"]).cast(pa.string()),
            "associated_query_id": self._ids.take(pairs["lender"]).cast(pa.string()),
            "kind": pairs["kind"],
            "terms": self._matched(pairs),
            "score": pairs["score"],
            "date": pairs["date"],
        }
        return ASSOCIATIONS.rows(columns)

    def _matched(self, pairs: pa.Table) -> pa.Array:
        """The borrower's best terms, as many as its kind of association asks for."""
        four = self._tops.take(pairs["q"].combine_chunks())
        click = pc.equal(pairs["kind"].combine_chunks(), "click")
        numbers = pc.if_else(click, pc.list_slice(four, 0, 2), four)
        terms = self._terms.take(numbers.flatten()).cast(pa.string())
        return pa.ListArray.from_arrays(pc.subtract(numbers.offsets, numbers.offsets[0]), terms)
