"""What a review is for: which pairs it samples more often.

Pairs get a priority, 0 to 1; strata are classes of equal priority, and are sampled in proportion to size × priority
(Neyman, 1934). A pair's probability to be sampled is known (`review_sample.weight` is its inverse within the sampled
queries) and above 0, so that estimates stay unbiased.
"""

from __future__ import annotations

from typing import Literal, cast

from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.artifacts.checksummed_json import dump_checksummed, load_checksummed
from darklode.pipeline.base.errors import ArtifactError

Purpose = Literal["validate", "evaluate", "calibrate", "teach"]
PURPOSES: tuple[Purpose, ...] = ("validate", "evaluate", "calibrate", "teach")

PURPOSE_FILE = "review/purpose.json"

TABLES_READ: dict[Purpose, tuple[str, ...]] = {
    "validate": (),
    "evaluate": ("held_out",),
    "calibrate": (),
    "teach": ("panel_verdicts",),
}
"""Tables that the priorities need besides `pool` and `verdicts`."""

LEVELS = 14
"""Number of classes of priority, each 1/√2 of the one above; the last one holds everything below .011."""

EVALUATED_RANKS = 10
"""Ranks whose pairs decide the measure that systems are compared by (nDCG@10)."""
BELOW_GAIN = 0.06
"""Influence of a pair below these ranks, through the best possible ranking, in units of that of the first rank."""
LEFT_OUT_GAIN = 0.1
"""Factor for queries that `evaluate` leaves out: those of training, and test queries without a certain positive."""
RELEVANT_PROBABILITY, OTHER_PROBABILITY = 0.7, 0.1
"""Probabilities of relevance of labels without one: of 33 LLM judges' positives, half to nine tenths are relevant."""
MIN_PROBABILITY = 0.03
"""Probabilities are kept this far from 0 and 1: judges err where they are sure, too."""
MIN_UNCERTAINTY = 0.02

_PROBABILITY_SQL = (
    f"coalesce({{probability}}, CASE WHEN v.relevant THEN {RELEVANT_PROBABILITY} ELSE {OTHER_PROBABILITY} END)"
)
_BOUNDED_SQL = f"greatest({MIN_PROBABILITY}, least({1 - MIN_PROBABILITY}, {_PROBABILITY_SQL}))"


def bounded_probability_sql(probability: str) -> str:
    """SQL of a pair's probability of relevance, not too near to 0 and 1; by its label if it has none.

    Args:
        probability: SQL of the judge's probability; `v` must have the verdict.
    """
    return _BOUNDED_SQL.format(probability=probability)


_DEVIATION_SQL = f"2 * sqrt({_BOUNDED_SQL} * (1 - {_BOUNDED_SQL}))"

PRIORITY_SQL: dict[Purpose, str] = {
    # |influence| · √(p (1 − p)): the allocation with the smallest variance.
    "evaluate": f"""
        {_DEVIATION_SQL}
        * CASE WHEN p.best_rank <= {EVALUATED_RANKS} THEN 1 / log2(1 + p.best_rank) ELSE {BELOW_GAIN} END
        * CASE WHEN q.split = 'test' THEN 1 ELSE {LEFT_OUT_GAIN} END""",
    # Equally many pairs from each twentieth of the probabilities, more around the threshold.
    "calibrate": f"""
        least(1, greatest(1, count(*) OVER () / 1000.0)
                 / count(*) OVER (PARTITION BY p.tenant, floor(20 * {_PROBABILITY_SQL})))
        * (1 - abs({_PROBABILITY_SQL} - {{threshold}}))""",
    # Undecided probabilities and divided panels.
    "teach": f"greatest({MIN_UNCERTAINTY}, 4 * {_PROBABILITY_SQL} * (1 - {_PROBABILITY_SQL}), coalesce(m.division, 0))",
}

_LEVEL_SQL = "CAST(least({last}, greatest(0, floor(-2 * log2({priority})))) AS INTEGER)"

_JOIN_SQL: dict[Purpose, str] = {
    "evaluate": "LEFT JOIN (FROM held_out WHERE split = 'test') q USING (tenant, query_id)",
    "teach": """
        LEFT JOIN (
            SELECT tenant, query_id, chunk_id,
                   4 * avg(CAST(relevant AS INTEGER)) * (1 - avg(CAST(relevant AS INTEGER))) AS division
            FROM panel_verdicts GROUP BY tenant, query_id, chunk_id
        ) m USING (tenant, query_id, chunk_id)""",
}


def level_sql(purpose: Purpose, probability: str, threshold: float) -> tuple[str, str]:
    """SQL of a pair's level (0: highest priority) and of the joins that it needs.

    Args:
        purpose: of the review.
        probability: SQL of the pair's probability of relevance, which may be null.
        threshold: the judge's threshold.
    """
    if purpose == "validate":
        return "0", ""
    priority = PRIORITY_SQL[purpose].format(probability=probability, threshold=threshold)
    return _LEVEL_SQL.format(last=LEVELS - 1, priority=priority), _JOIN_SQL.get(purpose, "")


def covers_all_queries(purpose: Purpose) -> bool:
    """Whether the sample is drawn from all queries; otherwise from `review.query_share` of them."""
    return purpose != "validate"


def read_purpose(store: Store) -> Purpose:
    """The purpose of a run's review; `validate` if none was chosen.

    Raises:
        ArtifactError: its file is invalid.
    """
    content = store.read(PURPOSE_FILE)
    if content is None:
        return "validate"
    try:
        purpose = load_checksummed(content)["purpose"]
        if purpose not in PURPOSES:
            raise ValueError(f"unknown purpose {purpose}")
    except (ValueError, TypeError, KeyError) as error:
        raise ArtifactError(f"{store.path(PURPOSE_FILE)} is invalid ({error}); choose with `review --for`") from error
    return cast(Purpose, purpose)


def write_purpose(store: Store, purpose: Purpose) -> None:
    """Store the purpose of a run's review."""
    store.write(PURPOSE_FILE, dump_checksummed({"purpose": purpose}))
