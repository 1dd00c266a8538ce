"""The test queries' lists by the base and by the adapted encoder, as `evaluate` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.tables import TABLES

if TYPE_CHECKING:
    from darklode.pipeline.train.vectors import Base

READS = ("adaptation_queries", "adaptation_labels", "adaptation_texts", "adaptation_trials", "adapter_weights")
TESTED = Stage("adapter_test", 2, READS, ("test_rankings",))

SYSTEMS = ("base", "adapted")
MEASURES = ("nDCG@10", "R@10", "R@100", "Judged@10")
DEPTH = 100

QUERIES = """
    SELECT tenant, query_id, text, "group", kind, shares_positive FROM adaptation_queries WHERE split = 'test'
    ORDER BY tenant, query_id
"""

LABELS = """
    SELECT tenant, query_id, text_id, relevance FROM adaptation_labels
    SEMI JOIN (FROM adaptation_queries WHERE split = 'test') USING (tenant, query_id)
    SEMI JOIN adaptation_texts USING (tenant, text_id) ORDER BY tenant, query_id, text_id
"""


def tested(tables: Tables, output: Output, settings: AdaptSettings, base: Base) -> None:
    """Ask the test queries, and count that they were asked: what is chosen after that is chosen on them.

    Args:
        tables: those of `adaptation_pairs` and of the trials.
        output: takes `test_rankings`; its fact `asked` counts how often.
        settings: the method.
        base: the encoder that is adapted.

    Raises:
        ArtifactError: there are none.
    """
    from darklode.pipeline.train.methods import method_of
    from darklode.pipeline.train.stage import chosen
    from darklode.pipeline.train.task import Questions

    frozen = base.open(tables)
    asked = Questions.of(tables, frozen, "test")
    if not len(asked):
        raise ArtifactError(
            "no test query has a positive, so that no lift can be shown; raise split.test_share and build again, or "
            "mine with --test-from DAY"
        )
    best, weights = chosen(tables)
    adapted = method_of(settings, base).vectors(weights, best["share"], asked)
    vectors = {"base": asked.vectors, "adapted": adapted}
    tenant = tables.read("adaptation_queries", ["tenant"])["tenant"][0].as_py()
    for system in SYSTEMS:
        lists = asked.ranking(frozen, vectors[system], DEPTH)
        named = {"tenant": pa.repeat(tenant, lists.num_rows), "system": pa.repeat(system, lists.num_rows)}
        columns = {name: lists[name] for name in lists.column_names}
        output.write("test_rankings", TABLES["test_rankings"].rows(named | columns))
    output.facts["asked"] = output.earlier_facts.get("asked", 0) + 1
    output.count(
        FunnelStep("adapter_test", "test queries", len(asked), "places in lists", output.rows("test_rankings"))
    )
