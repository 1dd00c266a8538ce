"""What whoever uses a run must know, read off its tables; of a mined run also how its newest day differs."""

from typing import Any

from darklode.pipeline.base.agreement import MIN_LABELS, MIN_OF_EACH
from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.report import statistics
from darklode.pipeline.report.statistics import Statistic
from darklode.schemas.settings import Settings

FEW_TEST_QUERIES = 50

MANY_POSITIVES = 20
"""Of half of the queries that have any: the median of DevRev-Search is 6."""

LARGE_SHARE = 0.25
"""Of the candidates, but those whose verdict cannot be read: people called 5 to 14 % of such pools relevant."""

EVERYTHING = 0.98
"""Recall at the pool's depth: by people's labels the embedded retrievers reach .25 to .96."""

SMALL_TENANTS = """
    SELECT tenant, count(*) AS chunks FROM chunks GROUP BY tenant
    HAVING count(*) <= 2 * $1 ORDER BY tenant
"""


def caveats(tables: Tables, settings: Settings) -> list[str]:
    """Sentences for the card and the screen; none where there is nothing to say.

    Args:
        tables: `views.all_tables` of a finished run.
        settings: the run's settings.
    """
    sentences = [
        _small(tables, settings.pool.search_depth),
        _labels(tables),
        favored_retrievers(tables, settings),
        _implausible(tables, settings.pool.search_depth),
        _unreadable(tables),
        _contradicted_caveat(tables),
        missing_probabilities(tables),
        _unjudged_caveat(tables),
        _uncalibrated_caveat(tables),
        _impressions_caveat(tables),
        _positives_without_triplet(tables),
        _short_triplets(tables, settings.triplets.num_negatives),
    ]
    return [sentence for sentence in sentences if sentence]


def _small(tables: Tables, depth: int) -> str:
    tenants = tables.sql(SMALL_TENANTS, [depth])["tenant"].to_pylist()
    if not tenants:
        return ""
    tenant_list = ", ".join(tenants[:5]) + (" …" if len(tenants) > 5 else "")
    return f"Lists of {depth} hold half or more of the chunks of {tenant_list}: recall at that depth says little there."


def _labels(tables: Tables) -> str:
    rows = {row["split"]: row for row in statistics.labels(tables).to_pylist()}
    if "all" not in rows:
        return ""
    without, everything = rows["all"]["without_positives"], rows["all"]["queries"]
    test = rows["test"]["with_positives"] if "test" in rows else 0
    sentence = f"{without:,} of {everything:,} queries have no positive." if without else ""
    few = f"Only {test} test queries have a positive: differences between systems will be noise."
    return f"{sentence} {few}".strip() if test < FEW_TEST_QUERIES else sentence


LEARNED = (
    "Labels by a model of the retrievers' own scores favour these retrievers over any that took no part: compare no "
    "systems by them."
)


def favored_retrievers(tables: Tables, settings: Settings) -> str:
    """Whom labels by an encoder, or by a model of the retrievers' scores, favour; empty for those of other judges.

    Args:
        tables: `views.all_tables` of a run whose pool is judged.
        settings: the run's settings.
    """
    judges = [row["judge_id"] for who in (statistics.judges, statistics.members) for row in who(tables).to_pylist()]
    if any(judge.startswith("learned-") for judge in judges):
        return LEARNED
    if not any(judge.startswith("encoder-") for judge in judges):
        return ""
    own = [name for name in settings.pool.retrievers if name in settings.encoders]
    retriever_text = f" The audit holds {', '.join(own)} against an opinion like its own." if own else ""
    return f"Labels by an encoder's cosine favour systems like it: never compare encoders by them.{retriever_text}"


# What adaptive judging leaves out is the least likely part of the pool: without it the labels' share would be too high.
RELEVANT_SHARE = """
    SELECT count(*) FILTER (relevance > 0) / (count(*) + (SELECT count(*) FROM unjudged)) AS share
    FROM qrels HAVING count(*) > 0
"""
LEAST_RECALL = "SELECT min(recall_at_depth) AS least FROM audit_retrievers WHERE tenant IS NULL HAVING count(*) > 1"


def _implausible(tables: Tables, depth: int) -> str:
    medians = [row["median"] for row in statistics.labels(tables).to_pylist() if row["split"] == "all"]
    shares, recalls = tables.sql(RELEVANT_SHARE)["share"], tables.sql(LEAST_RECALL)["least"]
    telling = [] if _small(tables, depth) else recalls.to_pylist()  # a list finds everything in a small corpus
    signs = [
        *(f"half of the answered queries have {n:g} positives or more" for n in _pairs_above(MANY_POSITIVES, medians)),
        *(f"{share:.0%} of the candidates are relevant" for share in _pairs_above(LARGE_SHARE, shares.to_pylist())),
        *(f"each retriever finds {least:.0%} or more of them" for least in _pairs_above(EVERYTHING, telling)),
    ]
    if not signs:
        return ""
    return f"These labels are implausible: {'; '.join(signs)}. The judge calls too much relevant: read some triplets."


def _pairs_above(limit: float, values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None and value > limit]


def _unreadable(tables: Tables) -> str:
    unreadable = sum(statistics.judges(tables)["unreadable"].to_pylist())
    return (
        f"{unreadable:,} pairs have no readable verdict; they are neither positives nor negatives."
        if unreadable
        else ""
    )


def _contradicted_caveat(tables: Tables) -> str:
    contradicted = sum(filter(None, statistics.judges(tables)["contradicted"].to_pylist()))
    return (
        f"The log-probabilities of {contradicted:,} verdicts contradict the label that the judge wrote: the label "
        "stands, without a probability, and `verdicts.contradicted` marks them."
        if contradicted
        else ""
    )


def missing_probabilities(tables: Tables) -> str:
    """How many labels have no probability although the judge could give one, and why; empty if none is missing.

    Args:
        tables: `views.all_tables` of a run whose pool is judged.
    """
    rows = statistics.missing_probabilities(tables).to_pylist()
    if not rows:
        return ""
    missing, labels = sum(row["verdicts"] for row in rows), rows[0]["labels"]
    reasons = "; ".join(f"{row['verdicts']:,}: {row['reason']}" for row in rows)
    return f"{missing:,} of {labels:,} labels have no probability ({reasons})."


def _unjudged_caveat(tables: Tables) -> str:
    rows = [row for row in statistics.stopping(tables).to_pylist() if row["judged"] < row["pairs"]]
    if not rows:
        return ""
    n_unjudged = sum(row["pairs"] - row["judged"] for row in rows)
    worst = max(rows, key=lambda row: row["missed_high"])
    interval = f"{worst['missed_low']:.1%} to {worst['missed_high']:.1%}"
    return (
        f"{n_unjudged:,} pairs of the pool were not judged: neither positives nor negatives, so no metric may "
        "count them as not relevant. "
        f"Missed there: an estimated {worst['missed_share']:.1%} of the positives of tenant "
        f"{worst['tenant']} (95 % interval {interval}); in no tenant is that bound higher. {_of_queries(rows)} The "
        "audit knows the found positives only, which favour what several retrievers rank high."
    )


def _of_queries(rows: list[dict[str, Any]]) -> str:
    worst = max(rows, key=lambda row: row["query_missed_high"])
    interval = f"{worst['query_missed_low']:.1%} to {worst['query_missed_high']:.1%}"
    return (
        f"Of a single query's positives it is {worst['query_missed_share']:.1%} in the mean over queries ({interval}, "
        f"tenant {worst['tenant']})."
    )


def _uncalibrated_caveat(tables: Tables) -> str:
    few = [row["tenant"] for row in statistics.calibration(tables).to_pylist() if row["ece"] is None]
    if not few:
        return ""
    tenant_list = ", ".join(few[:5]) + (" …" if len(few) > 5 else "")
    return (
        f"Too few human labels of {tenant_list} for a reliability curve or a fitted threshold: {MIN_LABELS} with a "
        f"probability are needed, {MIN_OF_EACH} of them relevant and {MIN_OF_EACH} not."
    )


def _impressions_caveat(tables: Tables) -> str:
    rows = tables.sql("SELECT labelled, shown FROM validation WHERE tenant IS NULL AND retriever IS NULL").to_pylist()
    if not rows or not rows[0]["shown"]:
        return ""
    return (
        f"Of {rows[0]['labelled']:,} pairs that people reviewed they could see the judge's verdict of "
        f"{rows[0]['shown']:,}: such labels flatter the judge."
    )


def _short_triplets(tables: Tables, n_negatives: int) -> str:
    short = sum(statistics.triplets(tables, n_negatives)["short_rows"].to_pylist())
    return f"{short:,} triplets have fewer than {n_negatives} negatives; none were made up." if short else ""


LOST_POSITIVES_SHARE = 0.1
"""Share of the training positives that must be lost before it is worth a sentence."""

LOST_POSITIVES = """
    SELECT rows_in AS positives, rows_out AS triplets, reason, dropped FROM funnel
    WHERE step = 'triplets' AND reason IS NOT NULL ORDER BY dropped DESC, reason
"""


def _positives_without_triplet(tables: Tables) -> str:
    """How many positives of train and validation became no triplet, with the reasons, the commonest first."""
    rows = tables.sql(LOST_POSITIVES).to_pylist()
    if not rows or sum(row["dropped"] for row in rows) <= LOST_POSITIVES_SHARE * rows[0]["positives"]:
        return ""
    reasons = "; ".join(f"{row['dropped']:,} {row['reason']}" for row in rows)
    return f"{rows[0]['triplets']:,} of {rows[0]['positives']:,} training positives became triplets: {reasons}."


NO_NEGATIVE = Statistic("SELECT count(*) FILTER (len(negative_ids) = 0) AS n FROM triplets")
STRANGERS = Statistic("""
    SELECT count(*) AS pairs, min(positive_id) AS example FROM mined_pairs p
    ANTI JOIN documents d ON d.tenant = p.tenant AND d.doc_id = p.positive_id
""")


def mined_caveats(tables: Tables) -> list[str]:
    """Sentences for the card and the screen; none where there is nothing to say.

    Args:
        tables: `views.all_tables` of a mined run.
    """
    sentences = [_without_text(tables), _without_negative(tables), _left_out(tables)]
    return [sentence for sentence in sentences if sentence]


RANKER = (
    "The ranker is the embedded scorer, which is no language model: in labelled collections the document that it puts "
    "first is relevant for 31 to 73 % of the queries. Leave it out (relevance.ranker: none), or take a cross-encoder."
)


def weak_ranker(settings: Settings) -> str:
    """A sentence where the embedded scorer ranks; empty elsewhere."""
    return RANKER if settings.relevance.ranker == "judge" and settings.judge.kind == "embedded" else ""


def _without_text(tables: Tables) -> str:
    pairs, (strangers,) = tables.rows("mined_pairs"), STRANGERS(tables).to_pylist()
    missing = strangers["pairs"]
    if not missing:
        return ""
    all_of_them = f"None of {pairs:,} pairs has a triplet"
    which = all_of_them if missing == pairs else f"{missing:,} of {pairs:,} pairs have no triplet"
    return (
        f"{which}: the documents hold no text for their positives, such as {strangers['example']!r}. The log's ids "
        "must be the documents' doc_id (ingest.documents.columns.doc_id, logs.columns.doc_id)."
    )


def _without_negative(tables: Tables) -> str:
    short = int(NO_NEGATIVE(tables)["n"][0].as_py())
    return f"{short:,} triplets have no negative; none was made up." if short else ""


LEFT_OUT = """
    SELECT state, count(DISTINCT date) AS days, CAST(max(date) AS VARCHAR) AS latest
    FROM log_days WHERE state IN ('held', 'discarded') GROUP BY state ORDER BY state DESC
"""


def _left_out(tables: Tables) -> str:
    rows = tables.sql(LEFT_OUT).to_pylist() if "log_days" in tables else []
    day_texts = [f"{row['days']:,} {'is' if row['days'] == 1 else 'are'} {WORDS[row['state']]}" for row in rows]
    return f"Of the log's days, {' and '.join(day_texts)}: nothing is made of them." if day_texts else ""


WORDS = {"held": "held back until somebody decides", "discarded": "discarded"}
