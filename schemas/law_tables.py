"""Tables of `darklode entropy` and `darklode laws`: measurements, fits, plans."""

import pyarrow as pa

from darklode.schemas.adaptation_tables import ADAPTATION_TABLES
from darklode.schemas.distil_tables import DISTIL_TABLES
from darklode.schemas.model_swap_tables import MODEL_SWAP_TABLES
from darklode.schemas.reranker_tables import RERANKER_TABLES
from darklode.schemas.table import QUERY_ID, TENANT, Table, column
from darklode.schemas.tower_tables import TOWER_TABLES

MEASURE = column("measure", pa.string(), "contrastive_entropy, or a measure of ir_measures")
SOURCE = column("source", pa.string(), "source of the labels")
FORM = column("form", pa.string(), "functional form: size, parameters, joint, additive, constant; `size, begun` has D₀")
OF = column(
    "fitted_to",
    pa.string(),
    "points of the fit: `without the largest` or `all`; points near chance are always excluded",
)
SIZE = column("size", pa.int64(), "number of labelled training queries")
PARAMETERS = column("parameters", pa.float64(), "model parameters without embeddings; null if unknown", null=True)

LAW_ENCODER = column(
    "encoder",
    pa.string(),
    "encoder of the points; null: all encoders of the source, which differ in parameters",
    null=True,
)

SPLIT = column("split", pa.string(), "split of the query: train, validation or test")
ENCODER = column("encoder", pa.string(), "name of the encoder")
TEMPERATURE = column("temperature", pa.float64(), "temperature: the model's own, or as given")

CONTRASTIVE_ENTROPY = Table(
    "contrastive_entropy",
    ("tenant", "query_id", "text_id"),
    "contrastive entropy of each labelled positive (Scaling Laws for Dense Retrieval, Eq. 6)",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("text_id", pa.string(), "positive: chunk_id of a build, doc_id of a mined run"),
            SPLIT,
            column("group", pa.string(), "cluster of near-duplicates of the query"),
            ENCODER,
            TEMPERATURE,
            column("negatives", pa.int32(), "number of random unlabelled texts: 256, or all if fewer"),
            column("entropy", pa.float64(), "entropy in nats, >= 0; log(1 + negatives) if all scores are equal"),
        ]
    ),
)

ENTROPY_MEANS = Table(
    "contrastive_entropy_means",
    ("tenant", "split"),
    "mean of `contrastive_entropy` over pairs",
    pa.schema(
        [
            TENANT,
            SPLIT,
            ENCODER,
            TEMPERATURE,
            column("mean", pa.float64(), "mean, in nats"),
            column(
                "low", pa.float64(), "lower end of its 95 % interval over clusters; null for one cluster", null=True
            ),
            column("high", pa.float64(), "upper end", null=True),
            column("chance", pa.float64(), "entropy of constant scores: ln 257 with 256 negatives"),
            column("pairs", pa.int64(), "number of pairs"),
            column("queries", pa.int64(), "number of queries"),
            column("negatives", pa.int32(), "minimum number of negatives of a pair; fewer negatives lower the entropy"),
        ]
    ),
)

LAW_POINTS = Table(
    "law_points",
    (),
    "measured points: result of an encoder trained on a number of labels",
    pa.schema(
        [
            MEASURE,
            SOURCE,
            SIZE,
            PARAMETERS,
            column("encoder", pa.string(), "trained encoder; null if unknown", null=True),
            column(
                "encoder_id",
                pa.string(),
                "id of what decides its vectors: model, revision, prompts, tokens, dimensions, dtype; null: its name",
                null=True,
            ),
            column("trainer", pa.string(), "trainer: an `adapt` method or `towers`; null if unknown", null=True),
            column("seed", pa.int64(), "seed of sample and training; null if unknown", null=True),
            column("pairs", pa.int64(), "training pairs: queries with one positive each", null=True),
            column("value", pa.float64(), "mean of the measure over the test queries"),
            column("chosen", pa.string(), "selected setting, and interpolation or step; `base`: step 0", null=True),
            column("stopped", pa.string(), "end of training: validation, or fixed steps", null=True),
        ]
    ),
)

LAW_FITS = Table(
    "law_fits",
    ("measure", "source", "encoder", "form", "fitted_to"),
    "best fit of each form: sum of Huber losses of log residuals",
    pa.schema(
        [
            MEASURE,
            SOURCE,
            LAW_ENCODER,
            FORM,
            OF,
            column("chosen", pa.bool_(), "true if its AICc is the lowest"),
            column("points", pa.int64(), "number of fitted points"),
            column("loss", pa.float64(), "sum of Huber losses, in units of .001²"),
            column("starts", pa.int64(), "number of starting points"),
            column("searched", pa.int64(), "best starting points, optimized to convergence"),
            column("reached", pa.int64(), "of these, number that converge to the best loss"),
            column("aicc", pa.float64(), "corrected Akaike information criterion; null with too few points", null=True),
            column("r2", pa.float64(), "share of explained variance (no evidence of a law)", null=True),
            column("held_out_error", pa.float64(), "relative error on the largest size", null=True),
            column("degenerate", pa.string(), "bounds that the fit reaches, and what remains identifiable", null=True),
        ]
    ),
)

LAW_CONSTANTS = Table(
    "law_constants",
    ("measure", "source", "encoder", "form", "fitted_to", "constant"),
    "constants of the fits, in full precision",
    pa.schema(
        [
            MEASURE,
            SOURCE,
            LAW_ENCODER,
            FORM,
            OF,
            column("constant", pa.string(), "A, alpha, B, beta, D0, delta"),
            column("value", pa.float64(), "value of the constant"),
            column(
                "standard_error", pa.float64(), "standard error from the curvature; null if not identifiable", null=True
            ),
            column(
                "covariance",
                pa.list_(pa.float64()),
                "covariance with each constant of the form, in row order; null if not identifiable",
                null=True,
            ),
        ]
    ),
)

LAW_PREDICTIONS = Table(
    "law_predictions",
    ("measure", "source", "encoder", "fitted_to", "size", "parameters"),
    "predictions of the selected form at each measured point, and at 2x and 4x the largest size",
    pa.schema(
        [
            MEASURE,
            SOURCE,
            LAW_ENCODER,
            OF,
            SIZE,
            PARAMETERS,
            column("loss", pa.float64(), "measured loss, mean; 1 - measure if higher is better", null=True),
            column("predicted", pa.float64(), "loss predicted by the fit"),
            column("low", pa.float64(), "lower end of the 95 % prediction interval of a new point", null=True),
            column("high", pa.float64(), "upper end", null=True),
            column("part", pa.string(), "fitted, held out, near to chance, or not measured"),
        ]
    ),
)

LAW_VERDICTS = Table(
    "law_verdicts",
    ("measure", "source", "encoder"),
    "verdict: does the curve follow a law",
    pa.schema(
        [
            MEASURE,
            SOURCE,
            LAW_ENCODER,
            column("verdict", pa.string(), "law, no law, or not identifiable yet"),
            column("reason", pa.string(), "reason of the verdict"),
            column("claimed", pa.bool_(), "true if a law was claimed before evaluating the largest points"),
            column("form", pa.string(), "selected form", null=True),
            column("held_out_error", pa.float64(), "relative error on the largest points", null=True),
            column(
                "naive_error",
                pa.float64(),
                "relative error of the baseline: same value as at the previous size",
                null=True,
            ),
            column("points", pa.int64(), "number of points"),
            column("held_out", pa.int64(), "points of the largest size"),
            column("near_chance", pa.int64(), "points excluded because they are near chance"),
        ]
    ),
)

LAW_CORRELATIONS = Table(
    "law_correlations",
    ("measure", "source"),
    "correlation of contrastive entropy with a ranking measure over trained encoders (Figure 2 of the paper)",
    pa.schema(
        [
            column("measure", pa.string(), "name in ir_measures"),
            column("source", pa.string(), "source of the labels, or `all sources`"),
            column("encoders", pa.int64(), "number of encoders; null values with fewer than four"),
            column("pearson", pa.float64(), "Pearson correlation; null if one of them is constant", null=True),
            column("low", pa.float64(), "lower end of its 95 % bootstrap interval over encoders", null=True),
            column("high", pa.float64(), "upper end", null=True),
        ]
    ),
)

_UNKNOWN = "null without"

LAW_PLAN = Table(
    "law_plan",
    ("rank",),
    "options for the next step, with gain and cost",
    pa.schema(
        [
            column("rank", pa.int64(), "order in `laws plan`, from 1"),
            column("measure", pa.string(), "measure of the gain; null if none", null=True),
            column("source", pa.string(), "source of the labels; null if none", null=True),
            LAW_ENCODER,
            column(
                "option",
                pa.string(),
                "next step, budget, target, model and labels, label first, judge deeper, another source, larger model",
            ),
            column("amount", pa.float64(), "additional amount; null if beyond the range of the law", null=True),
            column("amount_low", pa.float64(), "lower end of its 95 % interval", null=True),
            column("amount_high", pa.float64(), "upper end", null=True),
            column("unit", pa.string(), "unit of the amount", null=True),
            column("gain", pa.float64(), "gain of the measure; above 0 is better", null=True),
            column("gain_low", pa.float64(), "lower end of its 95 % interval", null=True),
            column("gain_high", pa.float64(), "upper end", null=True),
            column("money", pa.float64(), f"cost; {_UNKNOWN} a price", null=True),
            column("money_low", pa.float64(), "lower end, from the interval of the amount", null=True),
            column("money_high", pa.float64(), "upper end", null=True),
            column("advice", pa.string(), "summary in one sentence"),
        ]
    ),
)

LAW_COSTS = Table(
    "law_costs",
    ("item",),
    "measured costs of the runs' labels and encoders",
    pa.schema(
        [
            column("item", pa.string(), "cost item"),
            column("value", pa.float64(), "cost"),
            column("low", pa.float64(), "lower end of its 95 % bootstrap interval", null=True),
            column("high", pa.float64(), "upper end", null=True),
            column("basis", pa.string(), "source of the figure"),
        ]
    ),
)

DEPTH_COSTS = Table(
    "depth_costs",
    ("from_rank",),
    "judge calls and positives by the best rank in any retriever",
    pa.schema(
        [
            column("from_rank", pa.int64(), "first rank of the range"),
            column("to_rank", pa.int64(), "last rank of the range"),
            column("judged", pa.bool_(), "true if judged; otherwise the next range to judge"),
            column("calls", pa.int64(), "number of pairs"),
            column("positives", pa.int64(), "relevant pairs; null if not judged", null=True),
            column(
                "calls_per_positive",
                pa.float64(),
                "calls per positive; null without a positive; lower bound if not judged",
                null=True,
            ),
            column("low", pa.float64(), "lower end of its 95 % bootstrap interval over queries", null=True),
            column("high", pa.float64(), "upper end; null if the range may have no positive", null=True),
        ]
    ),
)

NEXT_QUERIES = Table(
    "next_queries",
    ("tenant", "query_id"),
    "next batch to label, in order; `next_queries.csv` is the same for `darklode build --queries`",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("query", pa.string(), "text of the query"),
            column("rank", pa.int64(), "order in the batch, from 1"),
            column("reason", pa.string(), "cluster without a label, or largest disagreement"),
            column("cluster", pa.int64(), "cluster over the queries of the runs and all candidates"),
            column("cluster_labels", pa.int64(), "labelled training queries in the cluster"),
            column("rank_in_cluster", pa.int64(), "order among the candidates of the cluster, most frequent first"),
            column(
                "disagreement", pa.float64(), "mean disagreement of the cluster, 0 to 1; null if unknown", null=True
            ),
            column("count", pa.int64(), "frequency in the file or log, if known"),
        ]
    ),
)

LAWS = (LAW_POINTS, LAW_FITS, LAW_CONSTANTS, LAW_PREDICTIONS, LAW_VERDICTS, LAW_CORRELATIONS)
PLANNED = (LAW_PLAN, LAW_COSTS, DEPTH_COSTS, NEXT_QUERIES)
LAW_TABLES = (CONTRASTIVE_ENTROPY, ENTROPY_MEANS, *LAWS, *PLANNED)
TRAINING_TABLES = (*ADAPTATION_TABLES, *MODEL_SWAP_TABLES, *TOWER_TABLES, *RERANKER_TABLES, *DISTIL_TABLES, *LAW_TABLES)
"""Tables of all training jobs, in data order."""
