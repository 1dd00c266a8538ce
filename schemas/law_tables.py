"""The tables of `darklode entropy` and `darklode laws`: what was measured, what is fitted to it, and what follows."""

import pyarrow as pa

from darklode.schemas.adaptation_tables import ADAPTATION_TABLES
from darklode.schemas.table import QUERY_ID, TENANT, Table, field
from darklode.schemas.tower_tables import TOWER_TABLES

MEASURE = field("measure", pa.string(), "contrastive_entropy, or a measure of ir_measures")
SOURCE = field("source", pa.string(), "who gave the labels, as its rows say")
FORM = field("form", pa.string(), "size, parameters, joint, additive, constant; `size, begun` has D₀")
OF = field("fitted_to", pa.string(), "`without the largest`, or `all`; points near to chance are in neither")
SIZE = field("size", pa.int64(), "labelled queries that were learned from")
PARAMETERS = field("parameters", pa.float64(), "of the model, embeddings left out; null where nobody says", null=True)

LAW_ENCODER = field(
    "encoder",
    pa.string(),
    "the only encoder whose points these are; null: all of the source's, which differ in parameters",
    null=True,
)

SPLIT = field("split", pa.string(), "train, validation or test: the side of the query")
ENCODER = field("encoder", pa.string(), "as it was named")
TEMPERATURE = field("temperature", pa.float64(), "what scores are divided by: the model's own, or what was said")

CONTRASTIVE_ENTROPY = Table(
    "contrastive_entropy",
    ("tenant", "query_id", "text_id"),
    "how surely an encoder tells a labelled positive from random texts (Scaling Laws for Dense Retrieval, Eq. 6)",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            field("text_id", pa.string(), "the positive: chunk_id of a build, doc_id of a mined run"),
            SPLIT,
            field("group", pa.string(), "the query's cluster of near-duplicates"),
            ENCODER,
            TEMPERATURE,
            field("negatives", pa.int32(), "random texts without a label of the query: 256, or all that there are"),
            field("entropy", pa.float64(), "in nats, 0 and more; of equal scores log(1 + negatives)"),
        ]
    ),
)

ENTROPY_MEANS = Table(
    "contrastive_entropy_means",
    ("tenant", "split"),
    "the mean of `contrastive_entropy` over pairs",
    pa.schema(
        [
            TENANT,
            SPLIT,
            ENCODER,
            TEMPERATURE,
            field("mean", pa.float64(), "in nats"),
            field("low", pa.float64(), "lower end of its 95 % interval over clusters; null of one cluster", null=True),
            field("high", pa.float64(), "upper end", null=True),
            field("chance", pa.float64(), "of an encoder that scores all alike: ln 257 with 256 negatives"),
            field("pairs", pa.int64(), "how many"),
            field("queries", pa.int64(), "that they are of"),
            field("negatives", pa.int32(), "fewest random texts that a pair is compared with: fewer lower entropy"),
        ]
    ),
)

LAW_POINTS = Table(
    "law_points",
    (),
    "what an encoder reaches with so many labels",
    pa.schema(
        [
            MEASURE,
            SOURCE,
            SIZE,
            PARAMETERS,
            field("encoder", pa.string(), "which was trained; null where nobody says", null=True),
            field(
                "encoder_id",
                pa.string(),
                "all that decides its vectors: model, revision, prompts, tokens, dimensions, dtype; null: its name",
                null=True,
            ),
            field(
                "trainer", pa.string(), "how: what `adapt` would, or both `towers`; null where nobody says", null=True
            ),
            field("seed", pa.int64(), "of the sample and of training; null where nobody says", null=True),
            field("pairs", pa.int64(), "queries with a positive each that were learned from", null=True),
            field("value", pa.float64(), "the measure's mean over the test queries"),
            field("chosen", pa.string(), "setting, and share of the way or step; `base`: step 0", null=True),
            field("stopped", pa.string(), "what ended training: validation, or fixed steps", null=True),
        ]
    ),
)

LAW_FITS = Table(
    "law_fits",
    ("measure", "source", "encoder", "form", "fitted_to"),
    "each form's best fit: Huber's loss on logarithms, summed",
    pa.schema(
        [
            MEASURE,
            SOURCE,
            LAW_ENCODER,
            FORM,
            OF,
            field("chosen", pa.bool_(), "whether its AICc is the lowest"),
            field("points", pa.int64(), "that it is fitted to"),
            field("loss", pa.float64(), "in units of .001² of a logarithm"),
            field("starts", pa.int64(), "of the search"),
            field("searched", pa.int64(), "of them, those that looked best and were followed to their end"),
            field("reached", pa.int64(), "of these, those that end at the best loss"),
            field("aicc", pa.float64(), "Akaike's criterion for few points; null where there are too few", null=True),
            field("r2", pa.float64(), "share of the variance explained, which proves nothing", null=True),
            field("held_out_error", pa.float64(), "how far it misses the largest, as a share", null=True),
            field("degenerate", pa.string(), "which bounds it lies at, and what can be told all the same", null=True),
        ]
    ),
)

LAW_CONSTANTS = Table(
    "law_constants",
    ("measure", "source", "encoder", "form", "fitted_to", "constant"),
    "constants in full precision: rounded ones predict something else",
    pa.schema(
        [
            MEASURE,
            SOURCE,
            LAW_ENCODER,
            FORM,
            OF,
            field("constant", pa.string(), "A, alpha, B, beta, D0, delta"),
            field("value", pa.float64(), "its value"),
            field("standard_error", pa.float64(), "from the curvature; null where it cannot be told", null=True),
            field(
                "covariance",
                pa.list_(pa.float64()),
                "with each constant of the form, in the order of the rows; null where it cannot be told",
                null=True,
            ),
        ]
    ),
)

LAW_PREDICTIONS = Table(
    "law_predictions",
    ("measure", "source", "encoder", "fitted_to", "size", "parameters"),
    "what the chosen form says of each place, and of two and four times the largest size",
    pa.schema(
        [
            MEASURE,
            SOURCE,
            LAW_ENCODER,
            OF,
            SIZE,
            PARAMETERS,
            field("loss", pa.float64(), "mean of what was measured, 1 − it where more is better", null=True),
            field("predicted", pa.float64(), "loss by the fit"),
            field("low", pa.float64(), "lower end of the 95 % interval of a new point", null=True),
            field("high", pa.float64(), "upper end", null=True),
            field("part", pa.string(), "fitted, held out, near to chance, or not measured"),
        ]
    ),
)

LAW_VERDICTS = Table(
    "law_verdicts",
    ("measure", "source", "encoder"),
    "whether there is a law",
    pa.schema(
        [
            MEASURE,
            SOURCE,
            LAW_ENCODER,
            field("verdict", pa.string(), "law, no law, or not identifiable yet"),
            field("reason", pa.string(), "in words"),
            field("claimed", pa.bool_(), "whether a law was claimed before the largest points were looked at"),
            field("form", pa.string(), "the chosen one", null=True),
            field("held_out_error", pa.float64(), "how far it misses the largest points, as a share", null=True),
            field("naive_error", pa.float64(), "how far `as the size before` misses them", null=True),
            field("points", pa.int64(), "in all"),
            field("held_out", pa.int64(), "of them, those of the largest size"),
            field("near_chance", pa.int64(), "of them, those left out for lying near to chance"),
        ]
    ),
)

LAW_CORRELATIONS = Table(
    "law_correlations",
    ("measure", "source"),
    "how far contrastive entropy goes with a measure over the trained encoders (as Figure 2 of the paper)",
    pa.schema(
        [
            field("measure", pa.string(), "of ir_measures"),
            field("source", pa.string(), "who gave the labels, or `all sources` where there are several"),
            field("encoders", pa.int64(), "different ones; of fewer than four nothing is told"),
            field("pearson", pa.float64(), "−1: the measure falls as entropy rises; null: one stands still", null=True),
            field("low", pa.float64(), "lower end of its 95 % bootstrap interval over encoders", null=True),
            field("high", pa.float64(), "upper end", null=True),
        ]
    ),
)

_UNKNOWN = "null where nobody knows"

LAW_PLAN = Table(
    "law_plan",
    ("place",),
    "what may be done next, and what it brings and costs",
    pa.schema(
        [
            field("place", pa.int64(), "in the order of `laws plan`, from 1"),
            field("measure", pa.string(), "what the gain is of; null where it is of none", null=True),
            field("source", pa.string(), "whose labels; null where it is nobody's", null=True),
            LAW_ENCODER,
            field(
                "choice",
                pa.string(),
                "next step, budget, target, model and labels, label first, judge deeper, another source, larger model",
            ),
            field("amount", pa.float64(), "how many more; null where that is more than a law can say", null=True),
            field("amount_low", pa.float64(), "lower end of its 95 % interval", null=True),
            field("amount_high", pa.float64(), "upper end", null=True),
            field("unit", pa.string(), "what is counted", null=True),
            field("gain", pa.float64(), "in the measure's own terms: what is above 0 is better", null=True),
            field("gain_low", pa.float64(), "lower end of its 95 % interval", null=True),
            field("gain_high", pa.float64(), "upper end", null=True),
            field("money", pa.float64(), f"what it costs; {_UNKNOWN} a price", null=True),
            field("money_low", pa.float64(), "lower end, by the amount's interval", null=True),
            field("money_high", pa.float64(), "upper end", null=True),
            field("said", pa.string(), "the same in words"),
        ]
    ),
)

LAW_COSTS = Table(
    "law_costs",
    ("item",),
    "what the runs' labels and encoders took",
    pa.schema(
        [
            field("item", pa.string(), "what"),
            field("value", pa.float64(), "how much"),
            field("low", pa.float64(), "lower end of its 95 % bootstrap interval", null=True),
            field("high", pa.float64(), "upper end", null=True),
            field("basis", pa.string(), "what it is taken from"),
        ]
    ),
)

DEPTH_COSTS = Table(
    "depth_costs",
    ("from_rank",),
    "calls and positives of the judged pairs, by the best rank that any retriever gave them",
    pa.schema(
        [
            field("from_rank", pa.int64(), "first best rank"),
            field("to_rank", pa.int64(), "last one"),
            field("judged", pa.bool_(), "whether the judge saw them; otherwise they are the next to see"),
            field("calls", pa.int64(), "pairs"),
            field("positives", pa.int64(), "those of them that are relevant; null where nobody judged", null=True),
            field(
                "calls_per_positive", pa.float64(), "null without a positive; of what is not judged at least", null=True
            ),
            field("low", pa.float64(), "lower end of its 95 % bootstrap interval over queries", null=True),
            field("high", pa.float64(), "upper end; null where it may be none at all", null=True),
        ]
    ),
)

NEXT_QUERIES = Table(
    "next_queries",
    ("tenant", "query_id"),
    "the next batch to label, in its order; `next_queries.csv` is the same for `darklode build --queries`",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            field("query", pa.string(), "its text"),
            field("place", pa.int64(), "in the batch, from 1"),
            field("reason", pa.string(), "its cluster has no label yet, or what is most disagreed about"),
            field("cluster", pa.int64(), "of the runs' queries and all candidates together"),
            field("cluster_labels", pa.int64(), "labelled queries to learn from in it"),
            field("turn", pa.int64(), "which of its cluster's candidates it is, the most asked first"),
            field("disagreement", pa.float64(), "mean of its cluster's queries, 0 to 1; null without any", null=True),
            field("count", pa.int64(), "how often it was asked, where a file or log says so"),
        ]
    ),
)

LAWS = (LAW_POINTS, LAW_FITS, LAW_CONSTANTS, LAW_PREDICTIONS, LAW_VERDICTS, LAW_CORRELATIONS)
PLANNED = (LAW_PLAN, LAW_COSTS, DEPTH_COSTS, NEXT_QUERIES)
LAW_TABLES = (CONTRASTIVE_ENTROPY, ENTROPY_MEANS, *LAWS, *PLANNED)
TRAINING_TABLES = (*ADAPTATION_TABLES, *TOWER_TABLES, *LAW_TABLES)
"""Of all that trains, in data order."""
