"""Caveats that a user of a run should know, derived from its tables."""

from collections.abc import Sequence
from typing import Any

from darklode.pipeline.base.agreement import MIN_LABELS, MIN_OF_EACH
from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.judge.recorded import AMBIGUOUS_DOCUMENT, EMPTY_VERDICT, NOT_RECORDED
from darklode.pipeline.report import statistics
from darklode.pipeline.report.caveat import FAVORED_SYSTEMS, Caveat, with_text
from darklode.pipeline.report.grades import mixed_grades
from darklode.schemas.settings import Settings

FEW_TEST_QUERIES = 50
"""Recommended minimum of test queries with a positive."""

MANY_POSITIVES = 20
"""Implausible median of positives per answered query; DevRev-Search has 6."""

LARGE_SHARE = 0.25
"""Implausible share of relevant candidates; people call 5 to 14 % of such pools relevant."""

HIGH_RECALL = 0.98
"""Implausible recall of every retriever at the pool's depth; with human labels embedded retrievers reach .25 to .96."""

SMALL_TENANTS_SQL = """
    SELECT tenant, count(*) AS chunks FROM chunks GROUP BY tenant
    HAVING count(*) <= 2 * $1 ORDER BY tenant
"""
"""Tenants with so few chunks that a list of `$1` results contains at least half of them."""


WEAK_LABELS_TITLE = "Weak labels from the embedded scorer"
WEAK_LABELS_TEXT = (
    "The labels come from the embedded scorer, not from an LLM. They show how Darklode works but are too weak to "
    "rely on: do not compare neural retrievers with them, and do not publish them as a benchmark. For better labels, "
    "use --preset local, or an LLM judge (judge.kind: llm)."
)


def caveats(tables: Tables, settings: Settings) -> list[str]:
    """The texts of `ranked_caveats`, for the card."""
    return [caveat.text for caveat in ranked_caveats(tables, settings)]


def ranked_caveats(tables: Tables, settings: Settings) -> list[Caveat]:
    """Caveats of a benchmark, the most important first: wrong labels, bias, noise, then lost training data.

    Weak labels of the embedded scorer are not among them: see `weak_labels`.

    Args:
        tables: `duckdb_views.all_tables` of a finished run.
        settings: the settings of that run: pool depth, retrievers, negatives per triplet.
    """
    from darklode.pipeline.report.favored_systems import favored_systems  # slow to import; not for mined runs

    depth = settings.pool.search_depth
    return with_text(
        [
            Caveat("The labels are implausible", _implausible_labels_caveat(tables, depth), "labels"),
            Caveat(
                "The test labels are not precise enough",
                _imprecise_test_labels_caveat(tables, settings.labels.test_precision),
                "verdict-probabilities",
            ),
            Caveat("The labels favour some retrievers", favored_retrievers(tables, settings), "audit-retrievers"),
            *(Caveat(FAVORED_SYSTEMS, text, "evaluation") for text in favored_systems(tables, settings)),
            _few_positives_caveat(tables),
            Caveat("Reviewers saw the verdicts", _biased_reviewers_caveat(tables), "validation"),
            Caveat("Part of the pool was not judged", _unjudged_caveat(tables), "stopping"),
            Caveat("Verdicts could not be read", _unreadable_caveat(tables), "unreadable"),
            Caveat("Verdicts contradict their probabilities", _contradicted_caveat(tables), "judges"),
            Caveat("Recall means little for small tenants", _small_tenants_caveat(tables, depth), "sizes"),
            Caveat(
                "Many queries have no training positive",
                _few_training_queries_caveat(tables),
                "queries-without-positives",
            ),
            Caveat("Positives became no triplet", _lost_positives_caveat(tables), "funnel"),
            Caveat("Grades of people, but not of the judge", mixed_grades(tables), "grades"),
            Caveat("Labels have no probability", missing_probabilities(tables), "verdict-probabilities"),
            Caveat("Too few human labels for calibration", _uncalibrated_caveat(tables), "calibration"),
            Caveat(
                "Triplets lack negatives", _short_triplets_caveat(tables, settings.triplets.num_negatives), "triplets"
            ),
        ]
    )


def weak_labels(judge_ids: Sequence[str]) -> list[Caveat]:
    """Caveat on labels of the embedded scorer, if one of the judges is one."""
    is_weak = any(judge_id.startswith("embedded") for judge_id in judge_ids)
    return [Caveat(WEAK_LABELS_TITLE, WEAK_LABELS_TEXT, "judges")] if is_weak else []


def _small_tenants_caveat(tables: Tables, depth: int) -> str:
    """Caveat on tenants with at most 2 · depth chunks, the first five by name."""
    tenants = tables.sql(SMALL_TENANTS_SQL, [depth])["tenant"].to_pylist()
    if not tenants:
        return ""
    tenant_list = ", ".join(tenants[:5]) + (" …" if len(tenants) > 5 else "")
    return f"Recall@{depth} means little for these tenants, whose chunks number at most {2 * depth:,}: {tenant_list}."


def _few_positives_caveat(tables: Tables) -> Caveat:
    """Caveat on queries without a positive, and on a small test split."""
    rows_by_split = {row["split"]: row for row in statistics.labels(tables).to_pylist()}
    headline = "Some queries have no positive"
    if "all" not in rows_by_split:
        return Caveat(headline)
    n_unanswered = rows_by_split["all"]["without_positives"]
    n_queries = rows_by_split["all"]["queries"]
    n_test = rows_by_split["test"]["with_positives"] if "test" in rows_by_split else 0
    text = f"{n_unanswered:,} of {n_queries:,} queries have no certain positive." if n_unanswered else ""
    if n_test < FEW_TEST_QUERIES:
        headline = f"Only {n_test} test queries have a positive"
        text += (
            f" {headline} (at least {FEW_TEST_QUERIES} are recommended): differences between systems are mostly noise."
        )
    return Caveat(headline, text.strip(), "queries-without-positives")


TEST_PRECISION_SQL = """
    SELECT avg(weight) AS precision, count(*) AS positives FROM qrels JOIN queries USING (tenant, query_id)
    WHERE split = 'test' AND relevance > 0
"""


def _imprecise_test_labels_caveat(tables: Tables, target: float) -> str:
    """Caveat on test labels whose expected precision is below the wanted one."""
    (row,) = tables.sql(TEST_PRECISION_SQL).to_pylist()
    if row["precision"] is None or row["precision"] >= target - 0.005:  # the figures are shown with two digits
        return ""
    return (
        f"Of the {row['positives']:,} test positives about {row['precision']:.0%} are relevant by the judge's "
        f"probabilities, fewer than labels.test_precision ({target:.0%}): the judge is too unsure. Use a better judge, "
        "or have people label the test queries (darklode review)."
    )


FEW_TRAINING_QUERIES = 0.6
"""Share of train and validation queries with a triplet below which the caveat is shown."""

TRAINING_QUERIES_SQL = """
    SELECT count(*) AS queries, count(t.query_id) AS with_triplet
    FROM queries LEFT JOIN (SELECT DISTINCT tenant, query_id FROM triplets) t USING (tenant, query_id)
    WHERE split <> 'test'
"""


def _few_training_queries_caveat(tables: Tables) -> str:
    """Caveat on train and validation queries without a triplet."""
    (row,) = tables.sql(TRAINING_QUERIES_SQL).to_pylist()
    if row["with_triplet"] >= FEW_TRAINING_QUERIES * row["queries"]:
        return ""
    return (
        f"Only {row['with_triplet']:,} of {row['queries']:,} train and validation queries have a training positive. "
        "The others have no plausible candidate: add documents, retrievers or a better judge."
    )


LEARNED_JUDGE_CAVEAT = (
    "The labels come from a model trained on the retrievers' scores and favour these retrievers: do not compare "
    "systems with them."
)


def favored_retrievers(tables: Tables, settings: Settings) -> str:
    """Caveat on labels that favour some of the retrievers compared; empty if there are none.

    Two kinds of judges have this bias: a model trained on the retrievers' scores, and the cosine of an encoder.

    Args:
        tables: `duckdb_views.all_tables` of a judged run.
        settings: the settings of that run: its retrievers and encoders.
    """
    if any(judge_id.startswith("learned-") for judge_id in _judges_and_members(tables)):
        return LEARNED_JUDGE_CAVEAT
    if not _has_encoder_judge(tables):
        return ""
    biased = biased_retrievers(tables, settings)
    audit = f" The audit results of {', '.join(biased)} are biased." if biased else ""
    return f"Labels from an encoder's cosine favour similar encoders: do not compare encoders with them.{audit}"


def biased_retrievers(tables: Tables, settings: Settings) -> list[str]:
    """Retrievers of the pool whose audit results are biased because an encoder's cosine labelled the pairs.

    Args:
        tables: `duckdb_views.all_tables` of a judged run.
        settings: the settings of that run: its retrievers and encoders.
    """
    return (
        [name for name in settings.pool.retrievers if name in settings.encoders] if _has_encoder_judge(tables) else []
    )


def _has_encoder_judge(tables: Tables) -> bool:
    return any(judge_id.startswith("encoder-") for judge_id in _judges_and_members(tables))


def _judges_and_members(tables: Tables) -> list[str]:
    """Ids of the judges and of the members of panels."""
    judge_rows = [*statistics.judges(tables).to_pylist(), *statistics.members(tables).to_pylist()]
    return [row["judge_id"] for row in judge_rows]


# If most positives were given, their number says nothing about the judge.
POSITIVES_BY_JUDGE_SQL = "SELECT avg(CAST(source = 'judge' AS INTEGER)) AS share FROM qrels WHERE relevance > 0"

# Adaptive judging skips the least likely pairs; without counting them the share would be too high.
RELEVANT_SHARE_SQL = """
    SELECT count(*) FILTER (relevance IS DISTINCT FROM 0) / (count(*) + (SELECT count(*) FROM unjudged)) AS share
    FROM qrels HAVING count(*) > 0
"""
LOWEST_RECALL_SQL = (
    "SELECT min(recall_at_depth) AS least FROM audit_retrievers WHERE tenant IS NULL HAVING count(*) > 1"
)


def _implausible_labels_caveat(tables: Tables, depth: int) -> str:
    """Caveat on signs that the judge calls too much relevant; `depth` is the depth of the pool's rankings."""
    if (tables.sql(POSITIVES_BY_JUDGE_SQL)["share"][0].as_py() or 0) < 0.5:
        return ""
    medians = [row["median"] for row in statistics.labels(tables).to_pylist() if row["split"] == "all"]
    relevant_shares = tables.sql(RELEVANT_SHARE_SQL)["share"].to_pylist()
    lowest_recall = tables.sql(LOWEST_RECALL_SQL)["least"].to_pylist()
    recalls = [] if _small_tenants_caveat(tables, depth) else lowest_recall  # trivially high in a small corpus
    signs = [
        *(
            f"half of the answered queries have at least {n:g} positives"
            for n in _values_above(MANY_POSITIVES, medians)
        ),
        *(f"{share:.0%} of the candidates are relevant" for share in _values_above(LARGE_SHARE, relevant_shares)),
        *(
            f"every retriever finds at least {recall:.0%} of them within pool.depth"
            for recall in _values_above(HIGH_RECALL, recalls)
        ),
    ]
    if not signs:
        return ""
    return f"The labels are implausible: {'; '.join(signs)}. The judge probably calls too much relevant; read triplets."


def _values_above(limit: float, values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None and value > limit]


UNRECORDED_SQL = f"""
    SELECT error, count(*) AS n FROM verdicts
    WHERE relevant IS NULL AND error IN ('{NOT_RECORDED}', '{EMPTY_VERDICT}', '{AMBIGUOUS_DOCUMENT}')
    GROUP BY error ORDER BY n DESC
"""


def _unreadable_caveat(tables: Tables) -> str:
    """Caveat on pairs whose verdict could not be read, with the reasons of recorded verdicts."""
    n_unreadable = sum(statistics.judges(tables)["unreadable"].to_pylist())
    if not n_unreadable:
        return ""
    reasons = [f"{row['n']:,} {row['error']}" for row in tables.sql(UNRECORDED_SQL).to_pylist()]
    by_reason = f" ({'; '.join(reasons)})" if reasons else ""
    return f"{n_unreadable:,} pairs have no readable verdict and are neither positives nor negatives{by_reason}."


def _contradicted_caveat(tables: Tables) -> str:
    """Caveat on labels that contradict the probability computed from the judge's log-probabilities."""
    n_contradicted = sum(filter(None, statistics.judges(tables)["contradicted"].to_pylist()))
    return (
        f"The log-probabilities of {n_contradicted:,} verdicts contradict the judge's label. The label is used, "
        "without a probability; `verdicts.contradicted` marks these verdicts."
        if n_contradicted
        else ""
    )


def missing_probabilities(tables: Tables) -> str:
    """Caveat on labels without a probability although the judge can give one, with the reasons; empty if all have one.

    Args:
        tables: `duckdb_views.all_tables` of a judged run.
    """
    rows = statistics.missing_probabilities(tables).to_pylist()
    if not rows:
        return ""
    n_missing = sum(row["verdicts"] for row in rows)
    n_labels = rows[0]["labels"]
    reasons = "; ".join(f"{row['verdicts']:,}: {row['reason']}" for row in rows)
    return f"{n_missing:,} of {n_labels:,} labels have no probability ({reasons})."


def _unjudged_caveat(tables: Tables) -> str:
    """Caveat on pairs that adaptive judging skipped, with the estimated share of positives among them."""
    rows = [row for row in statistics.stopping(tables).to_pylist() if row["judged"] < row["pairs"]]
    if not rows:
        return ""
    n_unjudged = sum(row["pairs"] - row["judged"] for row in rows)
    worst = max(rows, key=lambda row: row["missed_high"])
    interval = f"{worst['missed_low']:.1%} to {worst['missed_high']:.1%}"
    return (
        f"{n_unjudged:,} pairs of the pool were not judged; metrics must not count them as not relevant. They "
        f"contain an estimated {worst['missed_share']:.1%} of the positives of tenant {worst['tenant']} (95 % "
        f"interval {interval}; the highest of all tenants). {_missed_per_query(rows)} The audit counts only the "
        "judged positives, which favour texts that several retrievers rank high."
    )


def _missed_per_query(rows: list[dict[str, Any]]) -> str:
    """Sentence on the share of missed positives averaged per query; `rows` are rows of `stopping`, one per tenant."""
    worst = max(rows, key=lambda row: row["query_missed_high"])
    interval = f"{worst['query_missed_low']:.1%} to {worst['query_missed_high']:.1%}"
    return (
        f"Averaged per query, {worst['query_missed_share']:.1%} of the positives are missed ({interval}, tenant "
        f"{worst['tenant']})."
    )


def _uncalibrated_caveat(tables: Tables) -> str:
    """Caveat on tenants with too few human labels for a calibration error (`ece`), the first five by name."""
    tenants = [row["tenant"] for row in statistics.calibration(tables).to_pylist() if row["ece"] is None]
    if not tenants:
        return ""
    tenant_list = ", ".join(tenants[:5]) + (" …" if len(tenants) > 5 else "")
    return (
        f"Too few human labels for {tenant_list} to draw a reliability curve or fit a threshold: at least {MIN_LABELS} "
        f"with a probability are required, at least {MIN_OF_EACH} relevant and {MIN_OF_EACH} not."
    )


def _biased_reviewers_caveat(tables: Tables) -> str:
    """Caveat on pairs whose reviewers saw the judge's verdict before they answered (column `shown`)."""
    rows = tables.sql("SELECT labelled, shown FROM validation WHERE tenant IS NULL AND retriever IS NULL").to_pylist()
    if not rows or not rows[0]["shown"]:
        return ""
    return (
        f"Reviewers saw the judge's verdict for {rows[0]['shown']:,} of {rows[0]['labelled']:,} pairs; their agreement "
        "with the judge is biased upwards."
    )


def _short_triplets_caveat(tables: Tables, n_negatives: int) -> str:
    """Caveat on triplets with fewer negatives than the settings ask for."""
    n_short = sum(statistics.triplets(tables, n_negatives)["short_rows"].to_pylist())
    return f"{n_short:,} triplets have fewer than {n_negatives} negatives." if n_short else ""


LOST_POSITIVES_SHARE = 0.1
"""Share of training positives without a triplet above which the caveat is shown."""

LOST_POSITIVES_SQL = """
    SELECT rows_in AS positives, rows_out AS triplets, reason, dropped FROM funnel
    WHERE step = 'triplets' AND reason IS NOT NULL ORDER BY dropped DESC, reason
"""
REASONS_BY_SETTING = ("uncertain by labels.training_precision", "beyond triplets.max_positives")
"""Reasons that settings ask for; positives dropped for them are not lost."""


def _lost_positives_caveat(tables: Tables) -> str:
    """Caveat on train and validation positives that became no triplet, with the reasons, most frequent first."""
    all_rows = tables.sql(LOST_POSITIVES_SQL).to_pylist()
    rows = [row for row in all_rows if row["reason"] not in REASONS_BY_SETTING]
    n_lost = sum(row["dropped"] for row in rows)
    n_positives = n_lost + (rows[0]["triplets"] if rows else 0)
    if n_lost <= LOST_POSITIVES_SHARE * n_positives:
        return ""
    reasons = "; ".join(f"{row['dropped']:,} {row['reason']}" for row in rows)
    counts = f"{rows[0]['triplets']:,} of {n_positives:,}"
    return f"Only {counts} training positives became triplets. Reasons for the others: {reasons}."
