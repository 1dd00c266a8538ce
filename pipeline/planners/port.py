"""The planner as a port: a query's terms and how important each is (ScalingNote, 4.1.1)."""

from typing import Protocol

import pyarrow as pa


class Planner(Protocol):
    """Gives term importances.

    Attributes:
        version: names all that can change an importance.
    """

    version: str

    def terms(self, queries: pa.Table) -> pa.Table:
        """Rows of `query_terms` for rows of tenant, query_id and text, in their order, each term of a query once."""
        ...
