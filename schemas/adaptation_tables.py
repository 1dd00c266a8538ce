"""The tables of `adapt-encoder`, in data order: what is learned from, what was tried, and what came of it."""

import pyarrow as pa

from darklode.schemas.table import QUERY_ID, TENANT, Table, column

INDEX = column("index", pa.int32(), "the run that it is from, from 0: a query searches the texts of its own run")
TEXT = column("text_id", pa.string(), "chunk_id of a build, doc_id of a mined run; of a later run `run N:` before it")
TRIAL = column("trial", pa.int32(), "number of the trial, from 0")

ADAPTATION_QUERIES = Table(
    "adaptation_queries",
    ("tenant", "query_id"),
    "the queries that an encoder is adapted, chosen and tested on; of a later run with `run N:` before their ids",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            INDEX,
            column("text", pa.string(), "the query's text"),
            column("group", pa.string(), "its cluster of near-duplicates"),
            column("split", pa.string(), "train, validation or test, as its run has it"),
            column("kind", pa.string(), "unseen, variant or seen, as `mined_test` has it; null of a build", null=True),
            column(
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
            column(
                "relevance", pa.int32(), "0 = not relevant, by a judge, by people or by the log; 1 and more = relevant"
            ),
            column("learned", pa.bool_(), "whether it is a positive that training learns from"),
            column("probability", pa.float32(), "the judge's, 0 to 1", null=True),
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
            column("doc_id", pa.string(), "the document it is of"),
            column("content_hash", pa.string(), "SHA-256 of title, heading and text, 32 hex digits"),
        ]
    ),
)

HEADROOM = Table(
    "headroom",
    ("system", "measure"),
    "what adapting could gain at most, on the queries that settings are chosen on",
    pa.schema(
        [
            column(
                "system",
                pa.string(),
                "base; base, its first 100 in the best order; judge: labelled texts by its probability; perfect",
            ),
            column("measure", pa.string(), "name of ir_measures"),
            column("value", pa.float64(), "mean over the queries, 0 to 1"),
            column("queries", pa.int64(), "how many"),
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
            column("step", pa.int32(), "steps done; 0: the base itself"),
            column("loss", pa.float64(), "mean since the row before; null before the first step", null=True),
            column(
                "validation",
                pa.float64(),
                "nDCG@10 on the validation queries; in cross-validation all numbers are means over the folds",
            ),
            column(
                "replaced",
                pa.float64(),
                "share of the negatives that the last mining replaced; null before the second",
                null=True,
            ),
            column("judged", pa.float64(), "share of the negatives that are labelled as not relevant"),
            column("short", pa.float64(), "share of the negatives that were wanted and not found"),
            column("spread", pa.float64(), "1 − mean cosine of two validation queries' vectors; 0: all are one"),
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
            column("setting", pa.string(), "learning rate, or ridge of the closed form"),
            column("share", pa.float64(), "of the way from the base's weights to the trained ones; 0: the base itself"),
            column("step", pa.int32(), "the step whose weights were kept"),
            column("validation", pa.float64(), "nDCG@10 on the queries that settings are chosen on"),
            column("queries", pa.int64(), "how many they are"),
            column(
                "folds",
                pa.int32(),
                "of the cross-validation over clusters of train and validation queries; null: the validation queries",
                null=True,
            ),
            column("stopped", pa.string(), "why it ended before its last step", null=True),
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
            column("tensor", pa.string(), "its name, such as `0.weight` and `0.bias` of a head's first layer"),
            column("row", pa.int32(), "from 0; a tensor of a single dimension is one row"),
            column("weights", pa.list_(pa.float32()), "its numbers"),
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
            column(
                "rank", pa.int32(), "the best of its ranks by the systems that are held against one another, from 1"
            ),
            column("judge_id", pa.string(), "as in `verdicts`"),
            column("relevant", pa.bool_(), "the label; null where the reply could not be read", null=True),
            column("probability", pa.float32(), "of being relevant, 0 to 1", null=True),
            column("grade", pa.int32(), "graded relevance, where the judge gives one", null=True),
            column("error", pa.string(), "why there is no label", null=True),
        ]
    ),
)

ADAPTER_HOLES = Table(
    "adapter_holes",
    ("system",),
    "labels in the first ten of the test queries before the judge filled holes, and what it added",
    pa.schema(
        [
            column("system", pa.string(), "base or adapted; in a comparison each of its systems"),
            column("places", pa.int64(), "in the lists, ten a query at most; in a comparison of all seeds"),
            column("labelled", pa.int64(), "of them with a label before: over places this is Judged@10"),
            column(
                "judged",
                pa.int64(),
                "of them that the judge labelled: Judged@10 is (labelled + judged) / places then",
            ),
            column("relevant", pa.int64(), "of these that are relevant"),
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
            column("shipped", pa.string(), "adapted or base"),
            column("reason", pa.string(), "why, in a sentence"),
            column("part", pa.string(), "the test queries that decide, as in `evaluation`", null=True),
            column("queries", pa.int64(), "how many they are"),
            column("difference", pa.float64(), "adapted less base, nDCG@10", null=True),
            column("low", pa.float64(), "lower end, 95 % bootstrap-t interval over clusters; null of one", null=True),
            column("high", pa.float64(), "upper end", null=True),
            column(
                "bounded_low",
                pa.float64(),
                "97.5 % lower bound that allows for a rare loss that no cluster shows",
                null=True,
            ),
            column(
                "p", pa.float64(), "two-sided, of a test that draws the sign of each cluster's difference", null=True
            ),
            column("clusters", pa.int64(), "clusters of near-duplicates that these queries fall into", null=True),
            column(
                "detectable",
                pa.float64(),
                "least true difference for which these queries release an adapter 4 times of 5; null of one cluster",
                null=True,
            ),
            column("setting", pa.string(), "learning rate or ridge that validation chose"),
            column("share", pa.float64(), "of the way to the trained weights that validation chose"),
            column("validation_queries", pa.int64(), "queries that it was chosen on"),
            column("folds", pa.int32(), "by cross-validation over so many folds; null: validation queries", null=True),
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
            column("folder", pa.string(), "where its adapter lies, below the folder of all"),
            column("shipped", pa.string(), "adapted or base; null where its rows are of no use", null=True),
            column("reason", pa.string(), "why, in a sentence"),
            column("adapter", pa.string(), "the adapter's id", null=True),
            column("data", pa.string(), "fingerprint of the rows that it learned from", null=True),
            column("weights", pa.string(), "hash of its files", null=True),
            column("part", pa.string(), "the test queries that decide, as in `evaluation`", null=True),
            column("queries", pa.int64(), "how many they are", null=True),
            column("difference", pa.float64(), "adapted less base, nDCG@10", null=True),
            column("low", pa.float64(), "lower end, 95 % bootstrap-t interval over clusters; null of one", null=True),
            column("high", pa.float64(), "upper end", null=True),
            column("validation_queries", pa.int64(), "queries that its setting was chosen on", null=True),
        ]
    ),
)

SEED = column("seed", pa.int32(), "of its draws, from 0")
RIVAL = column("system", pa.string(), "base, a method, a control, or a list that bounds what a method can reach")

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
            column("rank", pa.int32(), "place in the list, from 1"),
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
            column("measure", pa.string(), "name of ir_measures"),
            column("value", pa.float64(), "0 to 1"),
        ]
    ),
)

COMPARISON = Table(
    "comparison",
    ("part", "system", "measure"),
    "the systems of `adapt compare` against the base: means over seeds by query first, then over queries",
    pa.schema(
        [
            column("part", pa.string(), "which test queries, as in `evaluation`"),
            RIVAL,
            column("measure", pa.string(), "name of ir_measures"),
            column("value", pa.float64(), "mean over the queries, 0 to 1"),
            column("ceiling", pa.float64(), "the same of a perfect list"),
            column("difference", pa.float64(), "its value less the base's; null of the base and of Judged", null=True),
            column("low", pa.float64(), "lower end, 95 % bootstrap-t interval over clusters; null of one", null=True),
            column("high", pa.float64(), "upper end", null=True),
            column(
                "p", pa.float64(), "two-sided, of a test that draws the sign of each cluster's difference", null=True
            ),
            column("p_holm", pa.float64(), "p, corrected for all systems and measures of the part (Holm)", null=True),
            column(
                "over_control",
                pa.float64(),
                "its value less that of the control on shuffled labels: what the labels are worth; null without one",
                null=True,
            ),
            column("over_low", pa.float64(), "lower end, 95 % bootstrap-t interval over clusters", null=True),
            column("over_high", pa.float64(), "upper end", null=True),
            column("over_p", pa.float64(), "two-sided p of that difference, not corrected", null=True),
            column("seeds", pa.int32(), "how many times it was trained; 1 where nothing is drawn"),
            column("queries", pa.int64(), "how many queries"),
            column("clusters", pa.int64(), "clusters of near-duplicates that they fall into"),
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
            column("query", pa.string(), "as it is asked"),
            column("searches", pa.int64(), "how often it was; null: not known", null=True),
            column("overlap", pa.int32(), "texts in both lists"),
            column("base_ids", pa.list_(pa.string()), "text_ids that the base finds, best first, at most ten"),
            column("adapted_ids", pa.list_(pa.string()), "text_ids that the adapted encoder finds"),
            column("base_titles", pa.list_(pa.string()), "their titles, or doc_ids where there is none"),
            column("adapted_titles", pa.list_(pa.string()), "the same of adapted_ids"),
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
