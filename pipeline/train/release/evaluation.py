"""Rankings of the test queries by the base and the adapted encoder, in the format of `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.tables import TABLES

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Floats
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import QuerySet
    from darklode.pipeline.train.data.vectors import FrozenIndex

READS = ("adaptation_queries", "adaptation_labels", "adaptation_texts", "adaptation_trials", "adapter_weights")
ADAPTER_TEST_STAGE = Stage("adapter_test", 2, READS, ("test_rankings",))

SYSTEMS = ("base", "adapted")
MEASURES = ("nDCG@10", "R@10", "R@100", "Judged@10")
DEPTH = 100

TEST_QUERIES_SQL = """
    SELECT tenant, query_id, text, "group", kind, shares_positive FROM adaptation_queries WHERE split = 'test'
    ORDER BY tenant, query_id
"""

TEST_LABELS_SQL = """
    SELECT tenant, query_id, text_id, relevance FROM adaptation_labels
    SEMI JOIN (FROM adaptation_queries WHERE split = 'test') USING (tenant, query_id)
    SEMI JOIN adaptation_texts USING (tenant, text_id) ORDER BY tenant, query_id, text_id
"""


def rank_test_queries(tables: Tables, output: Output, settings: AdaptSettings, base: BaseEncoder) -> None:
    """Rank the test queries, and count how often this was done: later choices would be made on the test.

    Args:
        tables: the tables of `adaptation_pairs` and of the trials.
        output: receives `test_rankings`; its fact `asked` is the counter.
        settings: settings of the method.
        base: the encoder that is adapted.

    Raises:
        ArtifactError: there are no test queries.
    """
    from darklode.pipeline.train.fit.method_registry import create_method
    from darklode.pipeline.train.fit.stage import load_best_trial

    frozen = base.open(tables)
    queries = test_queries(tables, frozen)
    score, weights = load_best_trial(tables)
    adapted = create_method(settings, base).vectors(weights, score["share"], queries)
    write_rankings(tables, output, queries, frozen, {"base": queries.vectors, "adapted": adapted})
    output.facts["asked"] = output.earlier_facts.get("asked", 0) + 1


def test_queries(tables: Tables, frozen: FrozenIndex) -> QuerySet:
    """The test queries.

    Raises:
        ArtifactError: there are none.
    """
    from darklode.pipeline.train.data.dataset import QuerySet

    queries = QuerySet.from_tables(tables, frozen, "test")
    if not len(queries):
        raise ArtifactError(
            "no test query has a positive, so that no lift can be shown; raise split.test_share and build again, or "
            "mine with --test-from DAY"
        )
    return queries


def write_rankings(
    tables: Tables, output: Output, queries: QuerySet, frozen: FrozenIndex, systems: Mapping[str, Floats]
) -> None:
    """Write each system's rankings of the test queries, in the format of `evaluate`.

    Args:
        tables: the tables of `adaptation_pairs`.
        output: receives `test_rankings`.
        queries: the test queries.
        frozen: the text vectors to search.
        systems: query vectors by each system, shape (n_queries, dimensions).
    """
    tenant = tables.read("adaptation_queries", ["tenant"])["tenant"][0].as_py()
    for system, vectors in systems.items():
        lists = queries.ranking(frozen, vectors, DEPTH)
        system_columns = {"tenant": pa.repeat(tenant, lists.num_rows), "system": pa.repeat(system, lists.num_rows)}
        columns = {name: lists[name] for name in lists.column_names}
        output.write("test_rankings", TABLES["test_rankings"].rows(system_columns | columns))
    output.count(
        FunnelStep("adapter_test", "test queries", len(queries), "places in lists", output.rows("test_rankings"))
    )
