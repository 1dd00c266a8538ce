"""The tables of people's labels: those that were given, the pairs that people are asked about, what they answered."""

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

_FITTED = "null where the labels are too few"

HUMAN_LABELS = Table(
    "human_labels",
    ("tenant", "query_id", "chunk_id"),
    "the human labels of `judge.human_labels` that name a pair of the pool",
    pa.schema([TENANT, QUERY_ID, CHUNK_ID, column("relevance", pa.int32(), "0 = not relevant, 1 and more = relevant")]),
)

CALIBRATION = Table(
    "calibration",
    ("tenant",),
    "the judge against human labels",
    pa.schema(
        [
            TENANT,
            column("judge_id", pa.string(), "who gave the labels and probabilities, before a threshold was fitted"),
            column("labels", pa.int64(), "pairs that people labelled"),
            column("unreadable", pa.int64(), "those of them without a verdict"),
            column("threshold", pa.float64(), "the threshold that the counts and kappa are for", null=True),
            column("true_positives", pa.int64(), "relevant to both"),
            column("false_positives", pa.int64(), "relevant to the judge alone"),
            column("false_negatives", pa.int64(), "relevant to people alone"),
            column("true_negatives", pa.int64(), "relevant to neither"),
            column("kappa", pa.float64(), "Cohen's kappa of these counts; null where chance alone agrees", null=True),
            column("probabilities", pa.int64(), "labelled pairs with a probability: what the rest is computed from"),
            column("ece", pa.float64(), f"expected calibration error, 0 to 1; {_FITTED}", null=True),
            column(
                "fitted_threshold",
                pa.float64(),
                f"the threshold of the highest kappa; {_FITTED}, or none beats chance",
                null=True,
            ),
            FITTED_KAPPA,
            CROSS_VALIDATED_KAPPA,
        ]
    ),
)

RELIABILITY = Table(
    "reliability",
    ("tenant", "bin"),
    "how often pairs of like probability are relevant to people: bins of equal size, none where labels are too few",
    pa.schema(
        [
            TENANT,
            column("bin", pa.int32(), "place of the bin by probability, from 0; equal probabilities share a bin"),
            column("labels", pa.int64(), "labelled pairs in it"),
            column("lowest", pa.float64(), "lowest probability in it"),
            column("highest", pa.float64(), "highest probability in it"),
            column("mean_probability", pa.float64(), "what the judge said"),
            column("relevant_share", pa.float64(), "what people said: share of relevant pairs"),
            column("share_low", pa.float64(), "lower end of its 95 % Wilson interval"),
            column("share_high", pa.float64(), "upper end of the same"),
        ]
    ),
)

REVIEW_SAMPLE = Table(
    "review_sample",
    ("tenant", "query_id", "chunk_id"),
    "the pairs to review: a stratified sample of the candidates of some queries",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("position", pa.int32(), "order of review, from 0: query by query, a query's pairs in random order"),
            column("stratum", pa.string(), "the verdict, its probability and who found it: what was sampled evenly"),
            column("pairs", pa.int64(), "pairs of the stratum in the whole run"),
            column("sampled", pa.int64(), "pairs of the stratum in the sample"),
            column("weight", pa.float64(), "pairs of the run that this one stands for: pairs ÷ sampled"),
            column("shared", pa.bool_(), "every reviewer labels it; any other pair is labelled by one of them"),
        ]
    ),
)

REVIEW_STRATA = Table(
    "review_strata",
    ("stratum", "tenant", "retriever"),
    "how many pairs of the run each stratum holds, by tenant, and those of them that each retriever found",
    pa.schema(
        [
            column("stratum", pa.string(), "as in `review_sample`; it may be without a pair there"),
            column("position", pa.int32(), "order of the strata, from 0: neighbours are most alike"),
            TENANT,
            column("retriever", pa.string(), "found by it within the pool's depth; null: by any", null=True),
            column("verdict", pa.string(), "relevant, not relevant, unreadable or unjudged"),
            column("pairs", pa.int64(), "pairs of the run"),
        ]
    ),
)

REVIEWS = Table(
    "reviews",
    ("tenant", "query_id", "chunk_id", "reviewer"),
    "what people said of pairs: each reviewer's last answer",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("reviewer", pa.string(), "the name that the reviewer gave"),
            column(
                "relevance", pa.int32(), "0 = not relevant, 1 and more = relevant; null where it was skipped", null=True
            ),
            column("rationale", pa.string(), "the reviewer's reason, where one was given", null=True),
            column("judge_shown", pa.bool_(), "whether the reviewer could see the judge's verdict"),
            column("answered_at", pa.timestamp("us", tz="UTC"), "when"),
        ]
    ),
)

_POSTERIOR = "95 % interval"
_BOOTSTRAP = "95 % bootstrap interval over queries"
_UNKNOWN = "null where too little is labelled"

VALIDATION = Table(
    "validation",
    ("tenant", "retriever"),
    "the judge against people, estimated for all pairs of the run from those of the sample that people labelled",
    pa.schema(
        [
            column("tenant", pa.string(), "null: all tenants", null=True),
            column("retriever", pa.string(), "pairs that it found within the pool's depth; null: all pairs", null=True),
            column("labelled", pa.int64(), "pairs of the sample with a human label: what most reviewers said"),
            column("queries", pa.int64(), "queries that they belong to"),
            column("tied", pa.int64(), "pairs of the sample on which reviewers are divided: without a label"),
            column("skipped", pa.int64(), "pairs of the sample that all who saw them skipped"),
            column("outside", pa.int64(), "labelled pairs that the sample does not hold: they enter no estimate"),
            column("shown", pa.int64(), "labelled pairs whose verdict a reviewer saw: such labels flatter the judge"),
            column("verdicts", pa.int64(), "pairs of the run that were judged"),
            column("unreadable", pa.int64(), "those of them whose verdict could not be read"),
            column("null_rate", pa.float64(), "unreadable ÷ verdicts; null where nothing was judged", null=True),
            column("true_positives", pa.int64(), "labelled pairs that are relevant to both"),
            column("false_positives", pa.int64(), "labelled pairs that are relevant to the judge alone"),
            column("false_negatives", pa.int64(), "labelled pairs that are relevant to people alone"),
            column("true_negatives", pa.int64(), "labelled pairs that are relevant to neither"),
            column("unread_relevant", pa.int64(), "labelled as relevant, and unreadable or unjudged"),
            column("unread_not_relevant", pa.int64(), "labelled as not relevant, and unreadable or unjudged"),
            column("precision", pa.float64(), f"of what the judge found, the relevant share; {_UNKNOWN}", null=True),
            column("precision_low", pa.float64(), f"lower end, {_POSTERIOR}", null=True),
            column("precision_high", pa.float64(), "upper end", null=True),
            column("recall", pa.float64(), f"of the pool's positives, the share that it found; {_UNKNOWN}", null=True),
            column("recall_low", pa.float64(), f"lower end, {_POSTERIOR}", null=True),
            column("recall_high", pa.float64(), "upper end", null=True),
            column("missed", pa.float64(), f"positives of the pool that it did not find; {_UNKNOWN}", null=True),
            column("missed_low", pa.float64(), f"lower end, {_POSTERIOR}", null=True),
            column("missed_high", pa.float64(), "upper end", null=True),
            column("kappa", pa.float64(), f"Cohen's kappa over the run's readable verdicts; {_UNKNOWN}", null=True),
            column("kappa_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            column("kappa_high", pa.float64(), "upper end", null=True),
            column("sample_kappa", pa.float64(), "the same of the labelled pairs alone, each counted once", null=True),
            column("sample_kappa_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            column("sample_kappa_high", pa.float64(), "upper end", null=True),
            column(
                "weighted_kappa",
                pa.float64(),
                "quadratic-weighted kappa of grades over the run; null where judge or people give no grade above 1",
                null=True,
            ),
            column("weighted_kappa_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            column("weighted_kappa_high", pa.float64(), "upper end", null=True),
            column("threshold", pa.float64(), "the judge's in force; null where it has none, or several", null=True),
            column(
                "fitted_threshold",
                pa.float64(),
                f"the threshold of the highest kappa over the run; null for a retriever, and {_UNKNOWN}",
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
    "how far each two reviewers agree, and all together: the last row, without names",
    pa.schema(
        [
            column("reviewer", pa.string(), "one reviewer; null: all", null=True),
            column("other", pa.string(), "another, later by name; null: all", null=True),
            column("pairs", pa.int64(), "pairs that both labelled; all: that at least two did"),
            column("alike", pa.int64(), "those of them that were labelled alike"),
            column("kappa", pa.float64(), "Cohen's kappa of two; null where they never differ", null=True),
            column("kappa_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            column("kappa_high", pa.float64(), "upper end", null=True),
            column("alpha", pa.float64(), "Krippendorff's alpha (nominal) of all; null for two", null=True),
            column("alpha_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            column("alpha_high", pa.float64(), "upper end", null=True),
        ]
    ),
)

DISAGREEMENTS = Table(
    "disagreements",
    ("tenant", "query_id", "chunk_id"),
    "labelled pairs of the sample on which judge and people differ: those that stand for most come first",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("kind", pa.string(), "false positive, or missed positive"),
            column("verdict", pa.string(), "relevant, not relevant, unreadable or unjudged"),
            column("probability", pa.float32(), "the judge's, of being relevant", null=True),
            column("rationale", pa.string(), "the judge's reason, where it gave one", null=True),
            column("relevance", pa.int32(), "the human label"),
            column("reviewers", STRINGS, "who labelled the pair, by name"),
            column("reasons", STRINGS, "their reasons, in the same order; empty where none was given"),
            column("weight", pa.float64(), "pairs of the run that this one stands for"),
        ]
    ),
)

RELEASE = Table(
    "release",
    ("figure",),
    "the release gate: what was asked of the judge, and whether it was reached",
    pa.schema(
        [
            column("figure", pa.string(), "kappa, null_rate or recall, of all tenants"),
            column("value", pa.float64(), "what was found; null where it is unknown", null=True),
            column("asked", pa.float64(), "least (null_rate: most) that was asked for; null: not asked", null=True),
            column("passed", pa.bool_(), "an unknown figure does not pass; null where nothing was asked", null=True),
        ]
    ),
)

REVIEW_TABLES = (REVIEW_SAMPLE, REVIEW_STRATA, REVIEWS, VALIDATION, REVIEWER_AGREEMENT, DISAGREEMENTS, RELEASE)
