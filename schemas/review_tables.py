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
    field,
)

_FITTED = "null where the labels are too few"

HUMAN_LABELS = Table(
    "human_labels",
    ("tenant", "query_id", "chunk_id"),
    "the human labels of `judge.human` that name a pair of the pool",
    pa.schema([TENANT, QUERY_ID, CHUNK_ID, field("relevance", pa.int32(), "0 = not relevant, 1 and more = relevant")]),
)

CALIBRATION = Table(
    "calibration",
    ("tenant",),
    "the judge against human labels",
    pa.schema(
        [
            TENANT,
            field("judge_id", pa.string(), "who gave the labels and probabilities, before a threshold was fitted"),
            field("labels", pa.int64(), "pairs that people labelled"),
            field("unreadable", pa.int64(), "those of them without a verdict"),
            field("threshold", pa.float64(), "the threshold that the counts and kappa are for", null=True),
            field("true_positives", pa.int64(), "relevant to both"),
            field("false_positives", pa.int64(), "relevant to the judge alone"),
            field("false_negatives", pa.int64(), "relevant to people alone"),
            field("true_negatives", pa.int64(), "relevant to neither"),
            field("kappa", pa.float64(), "Cohen's kappa of these counts; null where chance alone agrees", null=True),
            field("probabilities", pa.int64(), "labelled pairs with a probability: what the rest is computed from"),
            field("ece", pa.float64(), f"expected calibration error, 0 to 1; {_FITTED}", null=True),
            field(
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
            field("bin", pa.int32(), "place of the bin by probability, from 0; equal probabilities share a bin"),
            field("labels", pa.int64(), "labelled pairs in it"),
            field("lowest", pa.float64(), "lowest probability in it"),
            field("highest", pa.float64(), "highest probability in it"),
            field("mean_probability", pa.float64(), "what the judge said"),
            field("relevant_share", pa.float64(), "what people said: share of relevant pairs"),
            field("share_low", pa.float64(), "lower end of its 95 % Wilson interval"),
            field("share_high", pa.float64(), "upper end of the same"),
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
            field("position", pa.int32(), "order of review, from 0: query by query, a query's pairs in random order"),
            field("stratum", pa.string(), "the verdict, its probability and who found it: what was sampled evenly"),
            field("pairs", pa.int64(), "pairs of the stratum in the whole run"),
            field("sampled", pa.int64(), "pairs of the stratum in the sample"),
            field("weight", pa.float64(), "pairs of the run that this one stands for: pairs ÷ sampled"),
            field("shared", pa.bool_(), "every reviewer labels it; any other pair is labelled by one of them"),
        ]
    ),
)

REVIEW_STRATA = Table(
    "review_strata",
    ("stratum", "tenant", "retriever"),
    "how many pairs of the run each stratum holds, by tenant, and those of them that each retriever found",
    pa.schema(
        [
            field("stratum", pa.string(), "as in `review_sample`; it may be without a pair there"),
            field("position", pa.int32(), "order of the strata, from 0: neighbours are most alike"),
            TENANT,
            field("retriever", pa.string(), "found by it within the pool's depth; null: by any", null=True),
            field("verdict", pa.string(), "relevant, not relevant, unreadable or unjudged"),
            field("pairs", pa.int64(), "pairs of the run"),
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
            field("reviewer", pa.string(), "the name that the reviewer gave"),
            field(
                "relevance", pa.int32(), "0 = not relevant, 1 and more = relevant; null where it was skipped", null=True
            ),
            field("rationale", pa.string(), "the reviewer's reason, where one was given", null=True),
            field("judge_shown", pa.bool_(), "whether the reviewer could see the judge's verdict"),
            field("answered_at", pa.timestamp("us", tz="UTC"), "when"),
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
            field("tenant", pa.string(), "null: all tenants", null=True),
            field("retriever", pa.string(), "pairs that it found within the pool's depth; null: all pairs", null=True),
            field("labelled", pa.int64(), "pairs of the sample with a human label: what most reviewers said"),
            field("queries", pa.int64(), "queries that they belong to"),
            field("tied", pa.int64(), "pairs of the sample on which reviewers are divided: without a label"),
            field("skipped", pa.int64(), "pairs of the sample that all who saw them skipped"),
            field("outside", pa.int64(), "labelled pairs that the sample does not hold: they enter no estimate"),
            field("shown", pa.int64(), "labelled pairs whose verdict a reviewer saw: such labels flatter the judge"),
            field("verdicts", pa.int64(), "pairs of the run that were judged"),
            field("unreadable", pa.int64(), "those of them whose verdict could not be read"),
            field("null_rate", pa.float64(), "unreadable ÷ verdicts; null where nothing was judged", null=True),
            field("true_positives", pa.int64(), "labelled pairs that are relevant to both"),
            field("false_positives", pa.int64(), "labelled pairs that are relevant to the judge alone"),
            field("false_negatives", pa.int64(), "labelled pairs that are relevant to people alone"),
            field("true_negatives", pa.int64(), "labelled pairs that are relevant to neither"),
            field("unread_relevant", pa.int64(), "labelled as relevant, and unreadable or unjudged"),
            field("unread_not_relevant", pa.int64(), "labelled as not relevant, and unreadable or unjudged"),
            field("precision", pa.float64(), f"of what the judge found, the relevant share; {_UNKNOWN}", null=True),
            field("precision_low", pa.float64(), f"lower end, {_POSTERIOR}", null=True),
            field("precision_high", pa.float64(), "upper end", null=True),
            field("recall", pa.float64(), f"of the pool's positives, the share that it found; {_UNKNOWN}", null=True),
            field("recall_low", pa.float64(), f"lower end, {_POSTERIOR}", null=True),
            field("recall_high", pa.float64(), "upper end", null=True),
            field("missed", pa.float64(), f"positives of the pool that it did not find; {_UNKNOWN}", null=True),
            field("missed_low", pa.float64(), f"lower end, {_POSTERIOR}", null=True),
            field("missed_high", pa.float64(), "upper end", null=True),
            field("kappa", pa.float64(), f"Cohen's kappa over the run's readable verdicts; {_UNKNOWN}", null=True),
            field("kappa_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            field("kappa_high", pa.float64(), "upper end", null=True),
            field("sample_kappa", pa.float64(), "the same of the labelled pairs alone, each counted once", null=True),
            field("sample_kappa_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            field("sample_kappa_high", pa.float64(), "upper end", null=True),
            field(
                "weighted_kappa",
                pa.float64(),
                "quadratic-weighted kappa of grades over the run; null where judge or people give no grade above 1",
                null=True,
            ),
            field("weighted_kappa_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            field("weighted_kappa_high", pa.float64(), "upper end", null=True),
            field("threshold", pa.float64(), "the judge's in force; null where it has none, or several", null=True),
            field(
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
            field("reviewer", pa.string(), "one reviewer; null: all", null=True),
            field("other", pa.string(), "another, later by name; null: all", null=True),
            field("pairs", pa.int64(), "pairs that both labelled; all: that at least two did"),
            field("alike", pa.int64(), "those of them that were labelled alike"),
            field("kappa", pa.float64(), "Cohen's kappa of two; null where they never differ", null=True),
            field("kappa_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            field("kappa_high", pa.float64(), "upper end", null=True),
            field("alpha", pa.float64(), "Krippendorff's alpha (nominal) of all; null for two", null=True),
            field("alpha_low", pa.float64(), f"lower end, {_BOOTSTRAP}", null=True),
            field("alpha_high", pa.float64(), "upper end", null=True),
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
            field("kind", pa.string(), "false positive, or missed positive"),
            field("verdict", pa.string(), "relevant, not relevant, unreadable or unjudged"),
            field("probability", pa.float32(), "the judge's, of being relevant", null=True),
            field("rationale", pa.string(), "the judge's reason, where it gave one", null=True),
            field("relevance", pa.int32(), "the human label"),
            field("reviewers", STRINGS, "who labelled the pair, by name"),
            field("reasons", STRINGS, "their reasons, in the same order; empty where none was given"),
            field("weight", pa.float64(), "pairs of the run that this one stands for"),
        ]
    ),
)

RELEASE = Table(
    "release",
    ("figure",),
    "the release gate: what was asked of the judge, and whether it was reached",
    pa.schema(
        [
            field("figure", pa.string(), "kappa, null_rate or recall, of all tenants"),
            field("value", pa.float64(), "what was found; null where it is unknown", null=True),
            field("asked", pa.float64(), "least (null_rate: most) that was asked for; null: not asked", null=True),
            field("passed", pa.bool_(), "an unknown figure does not pass; null where nothing was asked", null=True),
        ]
    ),
)

REVIEW_TABLES = (REVIEW_SAMPLE, REVIEW_STRATA, REVIEWS, VALIDATION, REVIEWER_AGREEMENT, DISAGREEMENTS, RELEASE)
