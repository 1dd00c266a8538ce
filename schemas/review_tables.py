"""Tables of human labels: given labels, the review sample, and the answers of reviewers."""

import pyarrow as pa

from darklode.schemas.table import (
    CHUNK_ID,
    CROSS_VALIDATED_KAPPA,
    FITTED_KAPPA,
    QUERY_ID,
    STRINGS,
    TENANT,
    Table,
    column,
)

_FITTED = "null with too few labels"

HUMAN_LABELS = Table(
    "human_labels",
    ("tenant", "query_id", "chunk_id"),
    "human labels of `judge.human_labels` for pairs of the pool",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("relevance", pa.int32(), "0 = not relevant, >= 1 = relevant"),
            column(
                "weight", pa.float64(), "pairs of the run that the label stands for, above 0; null: unknown", null=True
            ),
        ]
    ),
)

CALIBRATION = Table(
    "calibration",
    ("tenant",),
    "agreement of the judge with human labels",
    pa.schema(
        [
            TENANT,
            column("judge_id", pa.string(), "judge before threshold fitting"),
            column("labels", pa.int64(), "pairs with a human label"),
            column("unreadable", pa.int64(), "labelled pairs without a verdict"),
            column("threshold", pa.float64(), "threshold of the counts and kappa", null=True),
            column("true_positives", pa.int64(), "relevant by judge and people"),
            column("false_positives", pa.int64(), "relevant by the judge only"),
            column("false_negatives", pa.int64(), "relevant by people only"),
            column("true_negatives", pa.int64(), "not relevant by both"),
            column("kappa", pa.float64(), "Cohen's kappa of these counts; null if undefined", null=True),
            column("probabilities", pa.int64(), "labelled pairs with a probability, the basis of the columns below"),
            column("ece", pa.float64(), f"expected calibration error, 0 to 1; {_FITTED}", null=True),
            column(
                "fitted_threshold",
                pa.float64(),
                f"threshold with the highest kappa; {_FITTED}, or if none beats chance",
                null=True,
            ),
            FITTED_KAPPA,
            CROSS_VALIDATED_KAPPA,
            column(
                "slope",
                pa.float64(),
                "of the logistic regression of human labels on the log-odds of the judge's probabilities (Platt "
                f"scaling), which corrects these; {_FITTED}, or if the slope is not above 0",
                null=True,
            ),
            column("intercept", pa.float64(), "of the same regression", null=True),
            column(
                "grades",
                pa.list_(pa.int32()),
                "grades of relevant pairs by probability, ascending; null without usable human grades",
                null=True,
            ),
            column(
                "grade_thresholds",
                pa.list_(pa.float64()),
                "minimum probability of each grade after the first; null without usable human grades",
                null=True,
            ),
            column(
                "grade_kappa",
                pa.float64(),
                "quadratic-weighted kappa of these grades with people's, over the pairs relevant to people, with "
                "thresholds fitted on other queries; null without usable human grades",
                null=True,
            ),
        ]
    ),
)

RELIABILITY = Table(
    "reliability",
    ("tenant", "bin"),
    "reliability diagram: bins of equal size by probability; empty with too few labels",
    pa.schema(
        [
            TENANT,
            column("bin", pa.int32(), "bin by probability, from 0; equal probabilities share a bin"),
            column("labels", pa.int64(), "labelled pairs in the bin"),
            column("lowest", pa.float64(), "lowest probability in the bin"),
            column("highest", pa.float64(), "highest probability in the bin"),
            column("mean_probability", pa.float64(), "mean probability by the judge"),
            column("relevant_share", pa.float64(), "share of pairs relevant by human label"),
            column("share_low", pa.float64(), "lower end of its 95 % Wilson interval"),
            column("share_high", pa.float64(), "upper end"),
        ]
    ),
)

REVIEW_SAMPLE = Table(
    "review_sample",
    ("tenant", "query_id", "chunk_id"),
    "pairs to review: a stratified sample of the candidates of some queries",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("position", pa.int32(), "order of review, from 0: by query, pairs of a query in random order"),
            column("stratum", pa.string(), "stratum: verdict, probability range and number of retrievers"),
            column("pairs", pa.int64(), "pairs of the stratum in the whole run"),
            column("sampled", pa.int64(), "pairs of the stratum in the sample"),
            column("weight", pa.float64(), "sampling weight: pairs / sampled"),
            column("shared", pa.bool_(), "true if every reviewer labels it; other pairs are labelled by one reviewer"),
        ]
    ),
)

NEAR_MISSES = Table(
    "near_misses",
    ("tenant", "query_id", "chunk_id"),
    "most probable candidates of queries without a certain positive, reviewed first; not part of the sample",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("position", pa.int32(), "order of review, from 0: test queries first, then by probability"),
            column("probability", pa.float64(), "probability that the pair is relevant, above 0 to 1"),
        ]
    ),
)

REVIEW_STRATA = Table(
    "review_strata",
    ("stratum", "tenant", "retriever"),
    "number of pairs of the run by stratum, tenant and retriever",
    pa.schema(
        [
            column("stratum", pa.string(), "stratum, as in `review_sample`; may have no sampled pair"),
            column("position", pa.int32(), "order of the strata, from 0; adjacent strata are similar"),
            TENANT,
            column(
                "retriever", pa.string(), "pairs found by this retriever within the pool depth; null: by any", null=True
            ),
            column("verdict", pa.string(), "relevant, not relevant, unreadable or unjudged"),
            column("pairs", pa.int64(), "pairs of the run"),
        ]
    ),
)

REVIEWS = Table(
    "reviews",
    ("tenant", "query_id", "chunk_id", "reviewer"),
    "answers of reviewers: the last answer of each reviewer per pair",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("reviewer", pa.string(), "name of the reviewer"),
            column("relevance", pa.int32(), "0 = not relevant, >= 1 = relevant; null if skipped", null=True),
            column("rationale", pa.string(), "reason of the reviewer, if given", null=True),
            column("judge_shown", pa.bool_(), "true if the reviewer could see the judge's verdict"),
            column("answered_at", pa.timestamp("us", tz="UTC"), "time of the answer"),
        ]
    ),
)

_POSTERIOR = "95 % interval"
_BOOTSTRAP = "95 % bootstrap interval over queries"
_UNKNOWN = "null with too few labels"

VALIDATION = Table(
    "validation",
    ("tenant", "retriever"),
    "quality of the judge, estimated for all pairs of the run from the labelled sample",
    pa.schema(
        [
            column("tenant", pa.string(), "tenant; null: all tenants", null=True),
            column(
                "retriever",
                pa.string(),
                "pairs found by this retriever within the pool depth; null: all pairs",
                null=True,
            ),
            column("labelled", pa.int64(), "sampled pairs with a human label (majority of reviewers)"),
            column("queries", pa.int64(), "queries of these pairs"),
            column("tied", pa.int64(), "sampled pairs with tied reviewers, so without a label"),
            column("skipped", pa.int64(), "sampled pairs skipped by all reviewers"),
            column("outside", pa.int64(), "labelled pairs outside the sample, not used in estimates"),
            column(
                "shown",
                pa.int64(),
                "labelled pairs whose verdict was visible to a reviewer; these labels are biased towards the judge",
            ),
            column("verdicts", pa.int64(), "judged pairs of the run"),
            column("unreadable", pa.int64(), "judged pairs with an unreadable verdict"),
            column("null_rate", pa.float64(), "unreadable / verdicts; null if nothing was judged", null=True),
            column("true_positives", pa.int64(), "labelled pairs relevant by judge and people"),
            column("false_positives", pa.int64(), "labelled pairs relevant by the judge only"),
            column("false_negatives", pa.int64(), "labelled pairs relevant by people only"),
            column("true_negatives", pa.int64(), "labelled pairs not relevant by both"),
            column("unread_relevant", pa.int64(), "labelled relevant, but unreadable or unjudged"),
            column("unread_not_relevant", pa.int64(), "labelled not relevant, but unreadable or unjudged"),
            column("precision", pa.float64(), f"estimated precision of the judge's positives; {_UNKNOWN}", null=True),
            column("precision_low", pa.float64(), f"lower end, {_POSTERIOR}", null=True),
            column("precision_high", pa.float64(), "upper end", null=True),
            column("recall", pa.float64(), f"estimated recall of the pool's positives; {_UNKNOWN}", null=True),
            column("recall_low", pa.float64(), f"lower end, {_POSTERIOR}", null=True),
            column("recall_high", pa.float64(), "upper end", null=True),
            column("missed", pa.float64(), f"estimated number of missed positives of the pool; {_UNKNOWN}", null=True),
            column("missed_low", pa.float64(), f"lower end, {_POSTERIOR}", null=True),
            column("missed_high", pa.float64(), "upper end", null=True),
            column(
                "kappa",
                pa.float64(),
                f"estimated Cohen's kappa over the readable verdicts of the run; {_UNKNOWN}",
                null=True,
            ),
            column("kappa_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            column("kappa_high", pa.float64(), "upper end", null=True),
            column("sample_kappa", pa.float64(), "unweighted Cohen's kappa of the labelled pairs", null=True),
            column("sample_kappa_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            column("sample_kappa_high", pa.float64(), "upper end", null=True),
            column(
                "weighted_kappa",
                pa.float64(),
                "quadratic-weighted kappa of grades over the run; null if judge or people give no grade above 1",
                null=True,
            ),
            column("weighted_kappa_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            column("weighted_kappa_high", pa.float64(), "upper end", null=True),
            column("threshold", pa.float64(), "threshold of the judge; null for none or several", null=True),
            column(
                "fitted_threshold",
                pa.float64(),
                f"threshold with the highest estimated kappa; null for a retriever, and {_UNKNOWN}",
                null=True,
            ),
            FITTED_KAPPA,
            CROSS_VALIDATED_KAPPA,
        ]
    ),
)

REVIEWER_AGREEMENT = Table(
    "reviewer_agreement",
    ("reviewer", "other"),
    "agreement of each two reviewers; the last row, without names, is for all",
    pa.schema(
        [
            column("reviewer", pa.string(), "first reviewer; null: all", null=True),
            column("other", pa.string(), "second reviewer, later in the alphabet; null: all", null=True),
            column("pairs", pa.int64(), "pairs labelled by both; for all: by at least two"),
            column("agreements", pa.int64(), "pairs with equal labels"),
            column("kappa", pa.float64(), "Cohen's kappa of two reviewers; null if undefined", null=True),
            column("kappa_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            column("kappa_high", pa.float64(), "upper end", null=True),
            column(
                "weighted_kappa",
                pa.float64(),
                "quadratic-weighted kappa of two reviewers' grades; null if one of them gives no grade above 1",
                null=True,
            ),
            column("weighted_kappa_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            column("weighted_kappa_high", pa.float64(), "upper end", null=True),
            column("alpha", pa.float64(), "Krippendorff's nominal alpha of all reviewers; null for two", null=True),
            column("alpha_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            column("alpha_high", pa.float64(), "upper end", null=True),
        ]
    ),
)

DISAGREEMENTS = Table(
    "disagreements",
    ("tenant", "query_id", "chunk_id"),
    "sampled pairs where judge and people disagree, largest sampling weight first",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("kind", pa.string(), "false positive, or missed positive"),
            column("verdict", pa.string(), "relevant, not relevant, unreadable or unjudged"),
            column("probability", pa.float32(), "judge probability of relevance, 0 to 1", null=True),
            column("grade", pa.int32(), "grade by the judge, if it gives grades", null=True),
            column("rationale", pa.string(), "rationale of the judge, if given", null=True),
            column("relevance", pa.int32(), "human label: 0 or a grade"),
            column("reviewers", STRINGS, "reviewers of the pair, by name"),
            column("reasons", STRINGS, "their reasons, same order; empty if none"),
            column("weight", pa.float64(), "sampling weight: pairs of the run that it represents"),
        ]
    ),
)

RELEASE = Table(
    "release",
    ("figure",),
    "release gate: required and reached quality of the judge",
    pa.schema(
        [
            column("figure", pa.string(), "kappa, null_rate, probe_rate or recall, over all tenants"),
            column("value", pa.float64(), "value reached; null if unknown", null=True),
            column(
                "asked",
                pa.float64(),
                "required minimum; of a rate, maximum; null if not required",
                null=True,
            ),
            column("passed", pa.bool_(), "true if reached; an unknown figure fails; null if not required", null=True),
        ]
    ),
)

REVIEW_TABLES = (
    REVIEW_SAMPLE,
    REVIEW_STRATA,
    NEAR_MISSES,
    REVIEWS,
    VALIDATION,
    REVIEWER_AGREEMENT,
    DISAGREEMENTS,
    RELEASE,
)
