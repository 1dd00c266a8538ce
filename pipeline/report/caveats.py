"""Caveats that a user of a run should know, derived from its tables."""

from typing import Any

from darklode.pipeline.base.agreement import MIN_LABELS, MIN_OF_EACH
from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.mine.admission.held_days import held_days
from darklode.pipeline.report import statistics
from darklode.pipeline.report.grades import mixed_grades
from darklode.pipeline.report.statistic import Statistic
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


def caveats(tables: Tables, settings: Settings) -> list[str]:
    """Caveats of a benchmark, a sentence or paragraph each, for the card and the terminal.

    Args:
        tables: `duckdb_views.all_tables` of a finished run.
        settings: the settings of that run: pool depth, retrievers, negatives per triplet.
    """
    from darklode.pipeline.report.favored_systems import favored_systems  # slow to import; not for mined runs

    sentences = [
        _small_tenants_caveat(tables, settings.pool.search_depth),
        _few_positives_caveat(tables),
        _imprecise_test_labels_caveat(tables, settings.labels.test_precision),
        _few_training_queries_caveat(tables),
        favored_retrievers(tables, settings),
        *favored_systems(tables, settings),
        mixed_grades(tables),
        _implausible_labels_caveat(tables, settings.pool.search_depth),
        _unreadable_caveat(tables),
        _contradicted_caveat(tables),
        missing_probabilities(tables),
        _unjudged_caveat(tables),
        _uncalibrated_caveat(tables),
        _biased_reviewers_caveat(tables),
        _lost_positives_caveat(tables),
        _short_triplets_caveat(tables, settings.triplets.num_negatives),
    ]
    return [sentence for sentence in sentences if sentence]


def _small_tenants_caveat(tables: Tables, depth: int) -> str:
    """Caveat on tenants with at most 2 · depth chunks, the first five by name."""
    tenants = tables.sql(SMALL_TENANTS_SQL, [depth])["tenant"].to_pylist()
    if not tenants:
        return ""
    tenant_list = ", ".join(tenants[:5]) + (" …" if len(tenants) > 5 else "")
    return f"Recall@{depth} means little for these tenants, whose chunks number at most {2 * depth:,}: {tenant_list}."


def _few_positives_caveat(tables: Tables) -> str:
    """Caveat on queries without a positive, and on a small test split."""
    rows_by_split = {row["split"]: row for row in statistics.labels(tables).to_pylist()}
    if "all" not in rows_by_split:
        return ""
    n_unanswered = rows_by_split["all"]["without_positives"]
    n_queries = rows_by_split["all"]["queries"]
    n_test = rows_by_split["test"]["with_positives"] if "test" in rows_by_split else 0
    unanswered = f"{n_unanswered:,} of {n_queries:,} queries have no certain positive." if n_unanswered else ""
    few_test_queries = (
        f"Only {n_test} test queries have a positive (at least {FEW_TEST_QUERIES} are recommended): differences "
        "between systems are mostly noise."
    )
    return f"{unanswered} {few_test_queries}".strip() if n_test < FEW_TEST_QUERIES else unanswered


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
    judge_rows = [*statistics.judges(tables).to_pylist(), *statistics.members(tables).to_pylist()]
    judge_ids = [row["judge_id"] for row in judge_rows]
    if any(judge_id.startswith("learned-") for judge_id in judge_ids):
        return LEARNED_JUDGE_CAVEAT
    if not any(judge_id.startswith("encoder-") for judge_id in judge_ids):
        return ""
    encoder_retrievers = [name for name in settings.pool.retrievers if name in settings.encoders]
    audit = f" The audit results of {', '.join(encoder_retrievers)} are biased." if encoder_retrievers else ""
    return f"Labels from an encoder's cosine favour similar encoders: do not compare encoders with them.{audit}"


JUDGE_LABELS_SQL = "SELECT count(*) AS n FROM qrels WHERE source = 'judge'"

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
    if not tables.sql(JUDGE_LABELS_SQL)["n"][0].as_py():
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
        *(f"every retriever finds at least {recall:.0%} of them" for recall in _values_above(HIGH_RECALL, recalls)),
    ]
    if not signs:
        return ""
    return f"The labels are implausible: {'; '.join(signs)}. The judge probably calls too much relevant; read triplets."


def _values_above(limit: float, values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None and value > limit]


def _unreadable_caveat(tables: Tables) -> str:
    """Caveat on pairs whose verdict could not be read."""
    n_unreadable = sum(statistics.judges(tables)["unreadable"].to_pylist())
    return (
        f"{n_unreadable:,} pairs have no readable verdict and are neither positives nor negatives."
        if n_unreadable
        else ""
    )


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


NO_NEGATIVE_COUNT = Statistic("SELECT count(*) FILTER (len(negative_ids) = 0) AS n FROM triplets")
MISSING_DOCUMENTS = Statistic("""
    SELECT count(*) AS pairs, min(positive_id) AS example FROM mined_pairs p
    ANTI JOIN documents d ON d.tenant = p.tenant AND d.doc_id = p.positive_id
""")


def mined_caveats(tables: Tables) -> list[str]:
    """Caveats of a mined run (triplets from a search log), a sentence each, for the card and the terminal.

    Args:
        tables: `duckdb_views.all_tables` of a mined run.
    """
    sentences = [_missing_documents_caveat(tables), _no_negative_caveat(tables), *_excluded_days_caveats(tables)]
    return [sentence for sentence in sentences if sentence]


WEAK_RANKER_CAVEAT = (
    "The ranker is the embedded scorer, which is not a language model: on labelled collections its first document is "
    "relevant for 31 to 73 % of the queries. Disable it (relevance.ranker: none), or use a cross-encoder."
)


def weak_ranker(settings: Settings) -> str:
    """Caveat if the embedded scorer ranks the documents of relevance mining; otherwise empty."""
    return WEAK_RANKER_CAVEAT if settings.relevance.ranker == "judge" and settings.judge.kind == "embedded" else ""


def _missing_documents_caveat(tables: Tables) -> str:
    """Caveat on mined pairs whose positive is not among the ingested documents, with an example."""
    n_pairs = tables.rows("mined_pairs")
    (missing,) = MISSING_DOCUMENTS(tables).to_pylist()
    if not missing["pairs"]:
        return ""
    return (
        f"{missing['pairs']:,} of {n_pairs:,} pairs have no triplet because their positives are not among the "
        f"documents, e.g. {missing['example']!r}. The log's ids must equal the documents' doc_id "
        "(ingest.documents.columns.doc_id, logs.columns.doc_id)."
    )


def _no_negative_caveat(tables: Tables) -> str:
    """Caveat on triplets without a negative."""
    n_triplets = int(NO_NEGATIVE_COUNT(tables)["n"][0].as_py())
    return f"{n_triplets:,} triplets have no negative." if n_triplets else ""


N_HELD_DAYS = 3
"""Number of held days named in the card."""
DISCARDED_DAYS_SQL = "SELECT count(DISTINCT date) FROM log_days WHERE state = 'discarded'"


def _excluded_days_caveats(tables: Tables) -> list[str]:
    """Caveats on days of the log that the admission stage holds back or that an operator discarded."""
    if "log_days" not in tables:
        return []
    days = held_days(tables)
    option = "darklode mine {} {}"
    sentences = [
        f"{day.sentence(option.format('--accept-day', day.name), option.format('--discard-day', day.name))}."
        for day in days[:N_HELD_DAYS]
    ]
    more = [f"{len(days) - N_HELD_DAYS:,} more days are held back."] if len(days) > N_HELD_DAYS else []
    n_discarded = tables.sql(DISCARDED_DAYS_SQL)[0][0].as_py()
    return [*sentences, *more, *([f"{n_discarded:,} days of the log were discarded."] if n_discarded else [])]
