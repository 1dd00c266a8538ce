"""Tables of a judge's verdicts and of the labels made of them."""

import pyarrow as pa

from darklode.schemas.table import CHUNK_ID, QUERY_ID, TENANT, Table, column

VERDICTS = Table(
    "verdicts",
    ("tenant", "query_id", "chunk_id", "judge_id"),
    "verdict of the judge on each pair",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column(
                "judge_id", pa.string(), "id of everything that can change a verdict: model, revision, prompt, settings"
            ),
            column("relevant", pa.bool_(), "label; null if the reply could not be parsed", null=True),
            column("probability", pa.float32(), "probability of relevance, 0 to 1", null=True),
            column(
                "no_probability",
                pa.string(),
                "why the label has no probability, if the judge gives a reason",
                null=True,
            ),
            column(
                "contradicted",
                pa.bool_(),
                "true if the log-probabilities favour another label than the written one; the written label is kept "
                "without a probability. Null if unknown",
                null=True,
            ),
            column("grade", pa.int32(), "graded relevance, if the judge returns grades", null=True),
            column("expected_grade", pa.float32(), "mean grade, weighted by the probability of each grade", null=True),
            column("rationale", pa.string(), "rationale of the judge, if requested", null=True),
            column("truncated", pa.bool_(), "true if the chunk was truncated to fit the judge's input", null=True),
            column("raw_reply", pa.string(), "unparsed reply of the judge", null=True),
            column("prompt_tokens", pa.int32(), "number of prompt tokens", null=True),
            column("cached_tokens", pa.int32(), "prompt tokens served from the prefix cache", null=True),
            column("completion_tokens", pa.int32(), "number of completion tokens", null=True),
            column("attempts", pa.int32(), "number of replies, parseable or not", null=True),
            column("error", pa.string(), "reason for a missing label", null=True),
        ]
    ),
)

PANEL_VERDICTS = Table(
    "panel_verdicts",
    VERDICTS.key,
    "verdict of each judge of a panel; `verdicts` has the combined verdict; empty without a panel",
    VERDICTS.schema,
)

JUDGMENTS = Table(
    "judgments",
    ("tenant", "query_id", "item_id"),
    "relevance judgments of `--qrels`, as read",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("item_id", pa.string(), "id of the judged document or chunk"),
            column("level", pa.string(), "document or chunk"),
            column("relevance", pa.int32(), "0 = not relevant, >= 1 = relevant; negative grades are 0"),
            column("split", pa.string(), "split of the query, if the source names one", null=True),
        ]
    ),
)

JUDGED_CHUNKS = Table(
    "judged_chunks",
    ("tenant", "query_id", "chunk_id"),
    "`judgments` by chunk",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column(
                "relevance",
                pa.int32(),
                "of a relevant document, the best chunk by BM25 has its grade, and the others null: unknown",
                null=True,
            ),
        ]
    ),
)

_RELEVANCE = column(
    "relevance",
    pa.int32(),
    "0 = not relevant, >= 1 = relevant; null: uncertain, by `labels.test_precision` or `labels.training_precision`",
    null=True,
)
_WEIGHT = column(
    "weight",
    pa.float64(),
    "probability that the pair is relevant, 0 to 1; by human label 0 or 1; 0 for a text shorter than "
    "`labels.min_letters`. Null if the judge gives none",
    null=True,
)
_LABEL_SOURCE = column(
    "source", pa.string(), "origin of the label: judge, or human (`--qrels`, or `labels.human_overrides`)"
)

QRELS = Table(
    "qrels",
    ("tenant", "query_id", "chunk_id"),
    "relevance judgments (TREC qrels); pairs without a readable verdict have none",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            _RELEVANCE,
            _WEIGHT,
            _LABEL_SOURCE,
        ]
    ),
)

TRAINING_LABELS = Table(
    "training_labels",
    ("tenant", "query_id", "chunk_id"),
    "labels of train and validation queries for training: more positives than in `qrels`",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            _RELEVANCE,
            _WEIGHT,
            _LABEL_SOURCE,
        ]
    ),
)

UNJUDGED = Table(
    "unjudged",
    ("tenant", "query_id", "chunk_id"),
    "pairs of the pool that adaptive judging skipped: neither positive nor negative",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("probability", pa.float32(), "last predicted probability of relevance, 0 to 1", null=True),
        ]
    ),
)

STOPPING = Table(
    "stopping",
    ("tenant",),
    "where adaptive judging stopped, with an estimate of the positives it missed",
    pa.schema(
        [
            TENANT,
            column("pairs", pa.int64(), "pairs of the pool"),
            column("judged", pa.int64(), "judged pairs, random sample included"),
            column("positives", pa.int64(), "positives found, random sample included"),
            column("random", pa.int64(), "pairs of the random sample of the pool, all judged"),
            column("random_positives", pa.int64(), "positives in the random sample"),
            column("random_reached", pa.int64(), "positives of the random sample that would have been judged anyway"),
            column("recall", pa.float64(), "requested share of the pool's positives"),
            column("missed_share", pa.float64(), "estimated share of the pool's positives that were not judged"),
            column("missed_low", pa.float64(), "lower end of its 95 % interval (Clopper-Pearson)"),
            column("missed_high", pa.float64(), "upper end"),
            column("queries", pa.int64(), "queries of the pool"),
            column("queries_found", pa.int64(), "queries with at least one positive"),
            column("queries_found_2_to_5", pa.int64(), "queries with 2 to 5 positives"),
            column(
                "query_missed_share",
                pa.float64(),
                "estimated share of a query's positives that were not judged, mean over queries with positives",
            ),
            column("query_missed_low", pa.float64(), "lower end of its 95 % interval"),
            column("query_missed_high", pa.float64(), "upper end"),
        ]
    ),
)

LABEL_TABLES = (JUDGMENTS, JUDGED_CHUNKS, VERDICTS, PANEL_VERDICTS, QRELS, TRAINING_LABELS, UNJUDGED, STOPPING)
