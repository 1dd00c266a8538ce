"""The tables of `adapt-encoder`, in data order: what is learned from, what was tried, and what came of it."""

import pyarrow as pa

from darklode.schemas.table import QUERY_ID, TENANT, Table, field

INDEX = field("index", pa.int32(), "the run that it is from, from 0: a query searches the texts of its own run")
TEXT = field("text_id", pa.string(), "chunk_id of a build, doc_id of a mined run; of a later run `run N:` before it")
TRIAL = field("trial", pa.int32(), "number of the trial, from 0")

ADAPTATION_QUERIES = Table(
    "adaptation_queries",
    ("tenant", "query_id"),
    "the queries that an encoder is adapted, chosen and tested on; of a later run with `run N:` before their ids",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            INDEX,
            field("text", pa.string(), "the query's text"),
            field("group", pa.string(), "its cluster of near-duplicates"),
            field("split", pa.string(), "train, validation or test, as its run has it"),
            field("kind", pa.string(), "unseen, variant or seen, as `mined_test` has it; null of a build", null=True),
            field(
                "shares_positive",
                pa.bool_(),
                "whether a positive of it is learned from; of a train query always",
            ),
        ]
    ),
)

ADAPTATION_LABELS = Table(
    "adaptation_labels",
    ("tenant", "query_id", "text_id"),
    "what is known of these queries",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            TEXT,
            field(
                "relevance", pa.int32(), "0 = not relevant, by a judge, by people or by the log; 1 and more = relevant"
            ),
            field("learned", pa.bool_(), "whether it is a positive that training learns from"),
            field("probability", pa.float32(), "the judge's, 0 to 1", null=True),
        ]
    ),
)

ADAPTATION_TEXTS = Table(
    "adaptation_texts",
    ("tenant", "text_id"),
    "the texts that are searched, without their words: their vectors stay as they are",
    pa.schema(
        [
            TENANT,
            TEXT,
            INDEX,
            field("doc_id", pa.string(), "the document it is of"),
            field("content_hash", pa.string(), "SHA-256 of title, heading and text, 32 hex digits"),
        ]
    ),
)

HEADROOM = Table(
    "headroom",
    ("system", "measure"),
    "what adapting could gain at most, on the queries that settings are chosen on",
    pa.schema(
        [
            field(
                "system",
                pa.string(),
                "base; base, its first 100 in the best order; judge: labelled texts by its probability; perfect",
            ),
            field("measure", pa.string(), "name of ir_measures"),
            field("value", pa.float64(), "mean over the queries, 0 to 1"),
            field("queries", pa.int64(), "how many"),
        ]
    ),
)

TRAINING_LOG = Table(
    "training_log",
    ("trial", "step"),
    "how each trial went",
    pa.schema(
        [
            TRIAL,
            field("step", pa.int32(), "steps done; 0: the base itself"),
            field("loss", pa.float64(), "mean since the row before; null before the first step", null=True),
            field(
                "validation",
                pa.float64(),
                "nDCG@10 on the validation queries; in cross-validation all numbers are means over the folds",
            ),
            field(
                "replaced",
                pa.float64(),
                "share of the negatives that the last mining replaced; null before the second",
                null=True,
            ),
            field("judged", pa.float64(), "share of the negatives that are labelled as not relevant"),
            field("short", pa.float64(), "share of the negatives that were wanted and not found"),
            field("spread", pa.float64(), "1 − mean cosine of two validation queries' vectors; 0: all are one"),
        ]
    ),
)

ADAPTATION_TRIALS = Table(
    "adaptation_trials",
    ("trial", "share"),
    "what was tried, and what it reached on the queries that settings are chosen on",
    pa.schema(
        [
            TRIAL,
            field("setting", pa.string(), "learning rate, or ridge of the closed form"),
            field("share", pa.float64(), "of the way from the base's weights to the trained ones; 0: the base itself"),
            field("step", pa.int32(), "the step whose weights were kept"),
            field("validation", pa.float64(), "nDCG@10 on the queries that settings are chosen on"),
            field("queries", pa.int64(), "how many they are"),
            field(
                "folds",
                pa.int32(),
                "of the cross-validation over clusters of train and validation queries; null: the validation queries",
                null=True,
            ),
            field("stopped", pa.string(), "why it ended before its last step", null=True),
        ]
    ),
)

ADAPTER_WEIGHTS = Table(
    "adapter_weights",
    ("trial", "tensor", "row"),
    "what each trial trained (in cross-validation the chosen one alone, on all train queries): of a head what it adds "
    "to the query vector (all 0 in its last layer is the base), of an encoder its own tensors",
    pa.schema(
        [
            TRIAL,
            field("tensor", pa.string(), "its name, such as `0.weight` and `0.bias` of a head's first layer"),
            field("row", pa.int32(), "from 0; a tensor of a single dimension is one row"),
            field("weights", pa.list_(pa.float32()), "its numbers"),
        ]
    ),
)

HOLE_VERDICTS = Table(
    "hole_verdicts",
    ("tenant", "query_id", "text_id"),
    "what the judge said of texts without a label in the first ten of the test queries",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            TEXT,
            field("rank", pa.int32(), "the best of its ranks by the systems that are held against one another, from 1"),
            field("judge_id", pa.string(), "as in `verdicts`"),
            field("relevant", pa.bool_(), "the label; null where the reply could not be read", null=True),
            field("probability", pa.float32(), "of being relevant, 0 to 1", null=True),
            field("grade", pa.int32(), "graded relevance, where the judge gives one", null=True),
            field("error", pa.string(), "why there is no label", null=True),
        ]
    ),
)

ADAPTER_HOLES = Table(
    "adapter_holes",
    ("system",),
    "labels in the first ten of the test queries before the judge filled holes, and what it added",
    pa.schema(
        [
            field("system", pa.string(), "base or adapted; in a comparison each of its systems"),
            field("places", pa.int64(), "in the lists, ten a query at most; in a comparison of all seeds"),
            field("labelled", pa.int64(), "of them with a label before: over places this is Judged@10"),
            field(
                "judged",
                pa.int64(),
                "of them that the judge labelled: Judged@10 is (labelled + judged) / places then",
            ),
            field("relevant", pa.int64(), "of these that are relevant"),
        ]
    ),
)

ADAPTER_VERDICT = Table(
    "adapter_verdict",
    ("tenant",),
    "what is handed over, and why",
    pa.schema(
        [
            TENANT,
            field("shipped", pa.string(), "adapted or base"),
            field("reason", pa.string(), "why, in a sentence"),
            field("part", pa.string(), "the test queries that decide, as in `evaluation`", null=True),
            field("queries", pa.int64(), "how many they are"),
            field("difference", pa.float64(), "adapted less base, nDCG@10", null=True),
            field("low", pa.float64(), "lower end, 95 % bootstrap-t interval over clusters; null of one", null=True),
            field("high", pa.float64(), "upper end", null=True),
            field(
                "bounded_low",
                pa.float64(),
                "97.5 % lower bound that allows for a rare loss that no cluster shows",
                null=True,
            ),
            field(
                "p", pa.float64(), "two-sided, of a test that draws the sign of each cluster's difference", null=True
            ),
            field("clusters", pa.int64(), "clusters of near-duplicates that these queries fall into", null=True),
            field(
                "detectable",
                pa.float64(),
                "least true difference for which these queries release an adapter 4 times of 5; null of one cluster",
                null=True,
            ),
            field("setting", pa.string(), "learning rate or ridge that validation chose"),
            field("share", pa.float64(), "of the way to the trained weights that validation chose"),
            field("validation_queries", pa.int64(), "queries that it was chosen on"),
            field("folds", pa.int32(), "by cross-validation over so many folds; null: validation queries", null=True),
        ]
    ),
)

ADAPTED_TENANTS = Table(
    "adapted_tenants",
    ("tenant",),
    "what came of each tenant of `darklode adapt --tenants`",
    pa.schema(
        [
            TENANT,
            field("folder", pa.string(), "where its adapter lies, below the folder of all"),
            field("shipped", pa.string(), "adapted or base; null where its rows are of no use", null=True),
            field("reason", pa.string(), "why, in a sentence"),
            field("adapter", pa.string(), "the adapter's id", null=True),
            field("data", pa.string(), "fingerprint of the rows that it learned from", null=True),
            field("weights", pa.string(), "hash of its files", null=True),
            field("part", pa.string(), "the test queries that decide, as in `evaluation`", null=True),
            field("queries", pa.int64(), "how many they are", null=True),
            field("difference", pa.float64(), "adapted less base, nDCG@10", null=True),
            field("low", pa.float64(), "lower end, 95 % bootstrap-t interval over clusters; null of one", null=True),
            field("high", pa.float64(), "upper end", null=True),
            field("validation_queries", pa.int64(), "queries that its setting was chosen on", null=True),
        ]
    ),
)

SEED = field("seed", pa.int32(), "of its draws, from 0")
RIVAL = field("system", pa.string(), "base, a method, a control, or a list that bounds what a method can reach")

COMPARISON_LISTS = Table(
    "comparison_lists",
    ("tenant", "system", "seed", "query_id", "rank"),
    "what each system of `adapt compare` finds for each test query: 100 texts at most",
    pa.schema(
        [
            TENANT,
            RIVAL,
            SEED,
            QUERY_ID,
            field("rank", pa.int32(), "place in the list, from 1"),
            TEXT,
        ]
    ),
)

COMPARISON_QUERIES = Table(
    "comparison_queries",
    ("tenant", "system", "seed", "query_id", "measure"),
    "what each system of `adapt compare` reaches on each test query",
    pa.schema(
        [
            TENANT,
            RIVAL,
            SEED,
            QUERY_ID,
            field("measure", pa.string(), "name of ir_measures"),
            field("value", pa.float64(), "0 to 1"),
        ]
    ),
)

COMPARISON = Table(
    "comparison",
    ("part", "system", "measure"),
    "the systems of `adapt compare` against the base: means over seeds by query first, then over queries",
    pa.schema(
        [
            field("part", pa.string(), "which test queries, as in `evaluation`"),
            RIVAL,
            field("measure", pa.string(), "name of ir_measures"),
            field("value", pa.float64(), "mean over the queries, 0 to 1"),
            field("ceiling", pa.float64(), "the same of a perfect list"),
            field("difference", pa.float64(), "its value less the base's; null of the base and of Judged", null=True),
            field("low", pa.float64(), "lower end, 95 % bootstrap-t interval over clusters; null of one", null=True),
            field("high", pa.float64(), "upper end", null=True),
            field(
                "p", pa.float64(), "two-sided, of a test that draws the sign of each cluster's difference", null=True
            ),
            field("p_holm", pa.float64(), "p, corrected for all systems and measures of the part (Holm)", null=True),
            field(
                "over_control",
                pa.float64(),
                "its value less that of the control on shuffled labels: what the labels are worth; null without one",
                null=True,
            ),
            field("over_low", pa.float64(), "lower end, 95 % bootstrap-t interval over clusters", null=True),
            field("over_high", pa.float64(), "upper end", null=True),
            field("over_p", pa.float64(), "two-sided p of that difference, not corrected", null=True),
            field("seeds", pa.int32(), "how many times it was trained; 1 where nothing is drawn"),
            field("queries", pa.int64(), "how many queries"),
            field("clusters", pa.int64(), "clusters of near-duplicates that they fall into"),
        ]
    ),
)

SWAP = Table(
    "swap",
    ("tenant", "query"),
    "live queries by what `darklode adapt swap` changes of their first ten, the most changed first",
    pa.schema(
        [
            TENANT,
            field("query", pa.string(), "as it is asked"),
            field("searches", pa.int64(), "how often it was; null: not known", null=True),
            field("overlap", pa.int32(), "texts in both lists"),
            field("base_ids", pa.list_(pa.string()), "text_ids that the base finds, best first, at most ten"),
            field("adapted_ids", pa.list_(pa.string()), "text_ids that the adapted encoder finds"),
            field("base_titles", pa.list_(pa.string()), "their titles, or doc_ids where there is none"),
            field("adapted_titles", pa.list_(pa.string()), "the same of adapted_ids"),
        ]
    ),
)

ADAPTATION_TABLES = (
    ADAPTATION_QUERIES,
    ADAPTATION_LABELS,
    ADAPTATION_TEXTS,
    HEADROOM,
    TRAINING_LOG,
    ADAPTATION_TRIALS,
    ADAPTER_WEIGHTS,
    HOLE_VERDICTS,
    ADAPTER_HOLES,
    ADAPTER_VERDICT,
    ADAPTED_TENANTS,
    COMPARISON_LISTS,
    COMPARISON_QUERIES,
    COMPARISON,
    SWAP,
)
