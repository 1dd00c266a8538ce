"""Rankings of the test queries by the base and the adapted encoder, in the format of `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.evaluate.stage import evaluate
from darklode.pipeline.train.data.system_names import (
    ADAPTED,
    BASE,
    CENTERING,
    LABEL_FREE,
    WHITENED,
    by_ranks,
    by_scores,
)
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.tables import TABLES

if TYPE_CHECKING:
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import QuerySet
    from darklode.pipeline.train.data.vectors import FrozenIndex
    from darklode.pipeline.train.release.bm25_rankings import Bm25Cache

READS = (
    "adaptation_queries",
    "adaptation_labels",
    "adaptation_texts",
    "term_queries",
    "headroom",
    "adaptation_trials",
    "adapter_weights",
    "control_weights",
)
ADAPTER_TEST_STAGE = Stage("adapter_test", 5, READS, ("test_rankings",))

CONTROL = f"{ADAPTED}, labels: shuffled"
SYSTEMS = (*LABEL_FREE, ADAPTED, by_ranks(ADAPTED), by_scores(ADAPTED), CONTROL)
MEASURES = ("nDCG@10", "R@10", "R@100", "Judged@10")
DEPTH = 100
"""Length of the rankings: the deepest cutoff of the measures, R@100."""

TEST_QUERIES_SQL = """
    SELECT tenant, query_id, text, "group", kind, shares_positive FROM adaptation_queries WHERE split = 'test'
    ORDER BY tenant, query_id
"""

TEST_LABELS_SQL = """
    SELECT tenant, query_id, text_id, relevance FROM adaptation_labels
    SEMI JOIN (FROM adaptation_queries WHERE split = 'test') USING (tenant, query_id)
    SEMI JOIN adaptation_texts USING (tenant, text_id) ORDER BY tenant, query_id, text_id
"""


def rank_test_queries(
    tables: Tables, output: Output, settings: AdaptSettings, base: BaseEncoder, bm25: Bm25Cache | None = None
) -> None:
    """Rank the test queries by the label-free systems, the adapted encoder, its fusions with BM25, and the control.

    Counts how often this was done: later choices would be made on the test.

    Args:
        tables: the tables of `adaptation_pairs`, `headroom`, the trials and the control.
        output: receives `test_rankings`; its fact `asked` is the counter.
        settings: settings of the method.
        base: the encoder that is adapted.
        bm25: where earlier stages kept BM25 indexes.

    Raises:
        ArtifactError: there are no test queries.
    """
    from darklode.pipeline.train.data.dataset import Task
    from darklode.pipeline.train.fit.method_registry import create_method
    from darklode.pipeline.train.fit.stage import load_best_trial
    from darklode.pipeline.train.fit.weights import from_rows
    from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings
    from darklode.pipeline.train.release.label_free import LabelFree

    frozen = base.open(tables)
    queries = test_queries(tables, frozen)
    score, weights = load_best_trial(tables)
    method = create_method(settings, base)
    adapted = method.vectors(weights, score["share"], queries)
    task = Task.from_tables(tables, frozen, same_document=True)
    label_free = LabelFree(task, Bm25Rankings(base, frozen, bm25), selected_settings(tables))
    rankings = label_free.rankings(queries, {ADAPTED: adapted})
    control = tables.read("control_weights")
    if control.num_rows:
        shuffled = method.vectors(from_rows(control), score["share"], queries)
        rankings[CONTROL] = queries.ranking(frozen, shuffled, DEPTH)
    write_rankings(tables, output, rankings, ADAPTER_TEST_STAGE)
    output.facts["asked"] = output.earlier_facts.get("asked", 0) + 1


def selected_settings(tables: Tables) -> dict[str, float]:
    """Settings of the label-free systems, by system."""
    rows = tables.sql(
        "SELECT DISTINCT system, setting, centering FROM headroom WHERE setting IS NOT NULL ORDER BY system"
    ).to_pylist()
    settings = {row["system"]: row["setting"] for row in rows}
    return settings | {CENTERING: next(row["centering"] for row in rows if row["system"] == WHITENED)}


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


def write_rankings(tables: Tables, output: Output, rankings: Mapping[str, pa.Table], stage: Stage) -> None:
    """Write each system's rankings of the test queries, in the format of `evaluate`.

    Args:
        tables: the tables of `adaptation_pairs`.
        output: receives `test_rankings`.
        rankings: query_id, rank, text_id and score, by system.
        stage: the stage that ranks them, for the funnel.
    """
    queries = tables.read("adaptation_queries", ["tenant", "split"])
    tenant = queries["tenant"][0].as_py()
    for system, rows in rankings.items():
        lists = rows.filter(pc.less_equal(rows["rank"], DEPTH))
        columns = {"tenant": pa.repeat(tenant, lists.num_rows), "system": pa.repeat(system, lists.num_rows)}
        columns |= {name: lists[name] for name in lists.column_names}
        output.write("test_rankings", TABLES["test_rankings"].rows(columns))
    n_queries = pc.sum(pc.equal(queries["split"], "test")).as_py()
    output.count(FunnelStep(stage.name, "test queries", n_queries, "places in lists", output.rows("test_rankings")))


def write_test_labels(tables: Tables, output: Output) -> None:
    """Write the test queries and their labels, in the format of `evaluate`; no unlabelled result is judged.

    Args:
        tables: the tables of `adaptation_pairs`.
        output: receives `test_queries` and `test_labels`.
    """
    for name, query in (("test_queries", TEST_QUERIES_SQL), ("test_labels", TEST_LABELS_SQL)):
        output.write(name, tables.sql(query).cast(TABLES[name].schema))


def decisive_systems(serve_as: str) -> tuple[str, ...]:
    """Systems that the release decision compares: encoders alone, or also their fusions if served as hybrid."""
    fusions = tuple(fuse(encoder) for encoder in (BASE, ADAPTED) for fuse in (by_ranks, by_scores))
    return (BASE, ADAPTED, *(fusions if serve_as == "hybrid" else ()))


def compared_pairs(systems: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of a system and the one it is compared with: each with the base, the adapted encoder with each, and each
    fusion with the adapted encoder with that of the base.
    """
    pairs = [(system, BASE) for system in systems if system != BASE]
    pairs += [(ADAPTED, system) for system in systems if system not in {BASE, ADAPTED}]
    fused = [(by_ranks(ADAPTED), by_ranks(BASE)), (by_scores(ADAPTED), by_scores(BASE))]
    return pairs + [pair for pair in fused if set(pair) <= set(systems)]


def evaluate_adapter(tables: Tables, output: Output, settings: EvaluateSettings, *, seed: int) -> None:
    """Evaluate all ranked systems, and compare the pairs of `compared_pairs`.

    Args:
        tables: as for `evaluate`.
        output: as for `evaluate`.
        settings: measures, resamples and sign flips.
        seed: seed of resamples and sign flips.
    """
    systems = ranked_systems(tables, SYSTEMS)
    evaluate(tables, output, settings, systems=systems, compared=compared_pairs(systems), seed=seed)


def ranked_systems(tables: Tables, systems: Sequence[str]) -> list[str]:
    """The systems that have rankings in `test_rankings`, in the given order."""
    ranked = set(tables.sql("SELECT DISTINCT system FROM test_rankings")["system"].to_pylist())
    return [name for name in systems if name in ranked]
