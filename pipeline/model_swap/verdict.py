"""Decide whether mapped queries are released: they must find the share asked for of what re-embedding would find."""

from __future__ import annotations

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.errors import NoLift
from darklode.pipeline.base.types import Row
from darklode.pipeline.evaluate.paired import MIN_CLUSTERS
from darklode.pipeline.model_swap.evaluation import INDEX_ENCODER, MAPPED, RE_EMBEDDING, SWAP_TEST_STAGE
from darklode.pipeline.model_swap.sample import SAMPLE_STAGE
from darklode.pipeline.model_swap.stage import FIT_STAGE
from darklode.pipeline.train.release.adapter import MAPPED as MAPPED_ENCODER
from darklode.schemas.model_swap_tables import SWAP_VERDICT

SWAP_VERDICT_STAGE = Stage(
    "swap_verdict",
    1,
    ("tower_queries", "swap_texts", "swap_trials", "swap_agreement", "swap_quality", "adaptation_texts"),
    (SWAP_VERDICT.name,),
)

SHIPPED, NOT_SHIPPED = MAPPED_ENCODER, "none"

FACTS_SQL = """
    SELECT (SELECT min(tenant) FROM tower_queries) AS tenant, method, setting,
           (SELECT count(*) FROM tower_queries WHERE split = 'validation') AS validation_queries,
           (SELECT count(*) FROM swap_texts) AS texts,
           (SELECT count(DISTINCT content_hash) FROM adaptation_texts) AS index_texts
    FROM swap_trials WHERE selected
"""
SHARE_SQL = """
    SELECT value AS recall_10, low, bounded_low, queries FROM swap_agreement
    WHERE system = $1 AND reference = $2 AND k = 10
"""
QUALITY_SQL = """
    SELECT system, value, difference, low, high, queries FROM swap_quality WHERE measure = 'nDCG@10'
"""


def decide(tables: Tables, output: Output, *, min_share: float) -> None:
    """Write the decision: released if interval and lower bound of Recall@10 are at least the share asked for.

    Args:
        tables: see `SWAP_VERDICT_STAGE`.
        output: receives `swap_verdict`.
        min_share: minimum share, 0 to 1.
    """
    (facts,) = tables.sql(FACTS_SQL).to_pylist()
    found: Row = next(iter(tables.sql(SHARE_SQL, [MAPPED, RE_EMBEDDING]).to_pylist()), {"queries": 0})
    n, share = found["queries"], found.get("recall_10")
    is_enough = n >= MIN_CLUSTERS and found["low"] is not None
    passes = is_enough and min(found["low"], found["bounded_low"]) >= min_share
    if not is_enough:
        reason = f"too few held-out queries to decide: {n}, at least {MIN_CLUSTERS} are needed; add some with --queries"
    else:
        bound = min(found["low"], found["bounded_low"])
        reason = (
            f"mapped queries find {share:.3f} of re-embedding's first 10 (at least {bound:.3f}; asked for: "
            f"{min_share:g}) on {n:,} held-out queries"
        )
    row = facts | found | {"shipped": SHIPPED if passes else NOT_SHIPPED, "reason": reason, "min_share": min_share}
    output.write(SWAP_VERDICT.name, SWAP_VERDICT.rows({name: [value] for name, value in row.items()}))


def read_verdict(tables: Tables) -> Row:
    """The row of `swap_verdict`."""
    return dict(tables.read(SWAP_VERDICT.name).to_pylist()[0])


def is_shipped(tables: Tables) -> bool:
    """Whether the mapped encoder is released."""
    return bool(read_verdict(tables)["shipped"] == SHIPPED)


def format_facts(run: Run) -> list[str]:
    """What else decides for or against the swap, as sentences: no change, labels, sample and costs."""
    tables = run.tables()
    row, sentences = read_verdict(tables), []
    for unchanged in tables.sql(SHARE_SQL, [INDEX_ENCODER, RE_EMBEDDING]).to_pylist():
        sentences.append(f"The index encoder, unchanged, finds {unchanged['recall_10']:.3f} of them")
    quality = {line["system"]: line for line in tables.sql(QUALITY_SQL).to_pylist()}
    if quality:
        values = ", ".join(f"{name} {quality[name]['value']:.3f}" for name in (INDEX_ENCODER, RE_EMBEDDING, MAPPED))
        sentences.append(f"nDCG@10 on {quality[MAPPED]['queries']:,} labelled test queries: {values}")
    if row["texts"] < row["index_texts"]:
        sentences.append(
            f"Measured in a sample of {row['texts']:,} of {row['index_texts']:,} texts; in the whole index the first "
            "10 are closer to one another"
        )
    return [*sentences, format_costs(run)]


def format_costs(run: Run) -> str:
    """Costs of the map and of embedding all texts again, in a sentence."""
    manifests = run.manifests()
    test, fit = manifests[SWAP_TEST_STAGE.name].facts, manifests[FIT_STAGE.name].facts
    n_texts = manifests[SAMPLE_STAGE.name].facts["index texts"]
    seconds = n_texts / max(test["documents per second"], 1e-9)
    return (
        f"Re-embedding {n_texts:,} texts takes about {_duration(seconds)} on this machine "
        f"({test['documents per second']:g} texts per second), fitting took {_duration(fit['seconds'])}; the map adds "
        f"{test['µs per query']:g} µs per query"
    )


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def require_share(run: Run) -> str:
    """The decision in sentences.

    Raises:
        NoLift: the share is not reached; the message says what a partial re-embedding brings.
    """
    tables = run.tables()
    row, facts = read_verdict(tables), format_facts(run)
    if row["shipped"] != SHIPPED:
        raise NoLift(". ".join([f"Re-embedding is needed: {row['reason']}", *facts, *format_partial(tables)]))
    return ". ".join([f"{run.store.url}/query_encoder: {row['reason']}", *facts]) + "."


PARTIAL_SQL = """
    SELECT share, recall_10 FROM swap_partial WHERE "order" = 'hottest' AND share IN (0.1, 0.2, 0.5) ORDER BY share
"""


def format_partial(tables: Tables) -> list[str]:
    """What a partial re-embedding brings, as a sentence."""
    rows = tables.sql(PARTIAL_SQL).to_pylist()
    if not rows:
        return []
    shares = ", ".join(f"{row['recall_10']:.3f} with {row['share']:.0%}" for row in rows)
    return [f"Re-embedding the hottest texts and searching both indexes finds {shares} of the texts"]
