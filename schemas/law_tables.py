"""The tables of `darklode entropy` and `darklode laws`: what was measured, what is fitted to it, and what follows."""

import pyarrow as pa

from darklode.schemas.adaptation_tables import ADAPTATION_TABLES
from darklode.schemas.table import QUERY_ID, TENANT, Table, column
from darklode.schemas.tower_tables import TOWER_TABLES

MEASURE = column("measure", pa.string(), "contrastive_entropy, or a measure of ir_measures")
SOURCE = column("source", pa.string(), "who gave the labels, as its rows say")
FORM = column("form", pa.string(), "size, parameters, joint, additive, constant; `size, begun` has D₀")
OF = column("fitted_to", pa.string(), "`without the largest`, or `all`; points near to chance are in neither")
SIZE = column("size", pa.int64(), "labelled queries that were learned from")
PARAMETERS = column("parameters", pa.float64(), "of the model, embeddings left out; null where nobody says", null=True)

LAW_ENCODER = column(
    "encoder",
    pa.string(),
    "the only encoder whose points these are; null: all of the source's, which differ in parameters",
    null=True,
)

SPLIT = column("split", pa.string(), "train, validation or test: the side of the query")
ENCODER = column("encoder", pa.string(), "as it was named")
TEMPERATURE = column("temperature", pa.float64(), "what scores are divided by: the model's own, or what was said")

CONTRASTIVE_ENTROPY = Table(
    "contrastive_entropy",
    ("tenant", "query_id", "text_id"),
    "how surely an encoder tells a labelled positive from random texts (Scaling Laws for Dense Retrieval, Eq. 6)",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("text_id", pa.string(), "the positive: chunk_id of a build, doc_id of a mined run"),
            SPLIT,
            column("group", pa.string(), "the query's cluster of near-duplicates"),
            ENCODER,
            TEMPERATURE,
            column("negatives", pa.int32(), "random texts without a label of the query: 256, or all that there are"),
            column("entropy", pa.float64(), "in nats, 0 and more; of equal scores log(1 + negatives)"),
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
            column("mean", pa.float64(), "in nats"),
            column("low", pa.float64(), "lower end of its 95 % interval over clusters; null of one cluster", null=True),
            column("high", pa.float64(), "upper end", null=True),
            column("chance", pa.float64(), "of an encoder that scores all alike: ln 257 with 256 negatives"),
            column("pairs", pa.int64(), "how many"),
            column("queries", pa.int64(), "that they are of"),
            column("negatives", pa.int32(), "fewest random texts that a pair is compared with: fewer lower entropy"),
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
            column("encoder", pa.string(), "which was trained; null where nobody says", null=True),
            column(
                "encoder_id",
                pa.string(),
                "all that decides its vectors: model, revision, prompts, tokens, dimensions, dtype; null: its name",
                null=True,
            ),
            column(
                "trainer", pa.string(), "how: what `adapt` would, or both `towers`; null where nobody says", null=True
            ),
            column("seed", pa.int64(), "of the sample and of training; null where nobody says", null=True),
            column("pairs", pa.int64(), "queries with a positive each that were learned from", null=True),
            column("value", pa.float64(), "the measure's mean over the test queries"),
            column("chosen", pa.string(), "setting, and share of the way or step; `base`: step 0", null=True),
            column("stopped", pa.string(), "what ended training: validation, or fixed steps", null=True),
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
            column("chosen", pa.bool_(), "whether its AICc is the lowest"),
            column("points", pa.int64(), "that it is fitted to"),
            column("loss", pa.float64(), "in units of .001² of a logarithm"),
            column("starts", pa.int64(), "of the search"),
            column("searched", pa.int64(), "of them, those that looked best and were followed to their end"),
            column("reached", pa.int64(), "of these, those that end at the best loss"),
            column("aicc", pa.float64(), "Akaike's criterion for few points; null where there are too few", null=True),
            column("r2", pa.float64(), "share of the variance explained, which proves nothing", null=True),
            column("held_out_error", pa.float64(), "how far it misses the largest, as a share", null=True),
            column("degenerate", pa.string(), "which bounds it lies at, and what can be told all the same", null=True),
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
            column("constant", pa.string(), "A, alpha, B, beta, D0, delta"),
            column("value", pa.float64(), "its value"),
            column("standard_error", pa.float64(), "from the curvature; null where it cannot be told", null=True),
            column(
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
            column("loss", pa.float64(), "mean of what was measured, 1 − it where more is better", null=True),
            column("predicted", pa.float64(), "loss by the fit"),
            column("low", pa.float64(), "lower end of the 95 % interval of a new point", null=True),
            column("high", pa.float64(), "upper end", null=True),
            column("part", pa.string(), "fitted, held out, near to chance, or not measured"),
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
            column("verdict", pa.string(), "law, no law, or not identifiable yet"),
            column("reason", pa.string(), "in words"),
            column("claimed", pa.bool_(), "whether a law was claimed before the largest points were looked at"),
            column("form", pa.string(), "the chosen one", null=True),
            column("held_out_error", pa.float64(), "how far it misses the largest points, as a share", null=True),
            column("naive_error", pa.float64(), "how far `as the size before` misses them", null=True),
            column("points", pa.int64(), "in all"),
            column("held_out", pa.int64(), "of them, those of the largest size"),
            column("near_chance", pa.int64(), "of them, those left out for lying near to chance"),
        ]
    ),
)

LAW_CORRELATIONS = Table(
    "law_correlations",
    ("measure", "source"),
    "how far contrastive entropy goes with a measure over the trained encoders (as Figure 2 of the paper)",
    pa.schema(
        [
            column("measure", pa.string(), "of ir_measures"),
            column("source", pa.string(), "who gave the labels, or `all sources` where there are several"),
            column("encoders", pa.int64(), "different ones; of fewer than four nothing is told"),
            column(
                "pearson", pa.float64(), "−1: the measure falls as entropy rises; null: one stands still", null=True
            ),
            column("low", pa.float64(), "lower end of its 95 % bootstrap interval over encoders", null=True),
            column("high", pa.float64(), "upper end", null=True),
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
            column("place", pa.int64(), "in the order of `laws plan`, from 1"),
            column("measure", pa.string(), "what the gain is of; null where it is of none", null=True),
            column("source", pa.string(), "whose labels; null where it is nobody's", null=True),
            LAW_ENCODER,
            column(
                "choice",
                pa.string(),
                "next step, budget, target, model and labels, label first, judge deeper, another source, larger model",
            ),
            column("amount", pa.float64(), "how many more; null where that is more than a law can say", null=True),
            column("amount_low", pa.float64(), "lower end of its 95 % interval", null=True),
            column("amount_high", pa.float64(), "upper end", null=True),
            column("unit", pa.string(), "what is counted", null=True),
            column("gain", pa.float64(), "in the measure's own terms: what is above 0 is better", null=True),
            column("gain_low", pa.float64(), "lower end of its 95 % interval", null=True),
            column("gain_high", pa.float64(), "upper end", null=True),
            column("money", pa.float64(), f"what it costs; {_UNKNOWN} a price", null=True),
            column("money_low", pa.float64(), "lower end, by the amount's interval", null=True),
            column("money_high", pa.float64(), "upper end", null=True),
            column("said", pa.string(), "the same in words"),
        ]
    ),
)

LAW_COSTS = Table(
    "law_costs",
    ("item",),
    "what the runs' labels and encoders took",
    pa.schema(
        [
            column("item", pa.string(), "what"),
            column("value", pa.float64(), "how much"),
            column("low", pa.float64(), "lower end of its 95 % bootstrap interval", null=True),
            column("high", pa.float64(), "upper end", null=True),
            column("basis", pa.string(), "what it is taken from"),
        ]
    ),
)

DEPTH_COSTS = Table(
    "depth_costs",
    ("from_rank",),
    "calls and positives of the judged pairs, by the best rank that any retriever gave them",
    pa.schema(
        [
            column("from_rank", pa.int64(), "first best rank"),
            column("to_rank", pa.int64(), "last one"),
            column("judged", pa.bool_(), "whether the judge saw them; otherwise they are the next to see"),
            column("calls", pa.int64(), "pairs"),
            column("positives", pa.int64(), "those of them that are relevant; null where nobody judged", null=True),
            column(
                "calls_per_positive", pa.float64(), "null without a positive; of what is not judged at least", null=True
            ),
            column("low", pa.float64(), "lower end of its 95 % bootstrap interval over queries", null=True),
            column("high", pa.float64(), "upper end; null where it may be none at all", null=True),
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
            column("query", pa.string(), "its text"),
            column("place", pa.int64(), "in the batch, from 1"),
            column("reason", pa.string(), "its cluster has no label yet, or what is most disagreed about"),
            column("cluster", pa.int64(), "of the runs' queries and all candidates together"),
            column("cluster_labels", pa.int64(), "labelled queries to learn from in it"),
            column("turn", pa.int64(), "which of its cluster's candidates it is, the most asked first"),
            column("disagreement", pa.float64(), "mean of its cluster's queries, 0 to 1; null without any", null=True),
            column("count", pa.int64(), "how often it was asked, where a file or log says so"),
        ]
    ),
)

LAWS = (LAW_POINTS, LAW_FITS, LAW_CONSTANTS, LAW_PREDICTIONS, LAW_VERDICTS, LAW_CORRELATIONS)
PLANNED = (LAW_PLAN, LAW_COSTS, DEPTH_COSTS, NEXT_QUERIES)
LAW_TABLES = (CONTRASTIVE_ENTROPY, ENTROPY_MEANS, *LAWS, *PLANNED)
TRAINING_TABLES = (*ADAPTATION_TABLES, *TOWER_TABLES, *LAW_TABLES)
"""Of all that trains, in data order."""
