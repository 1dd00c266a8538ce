"""The laws page: verdicts, predictions, comparison of forms, constants."""

from __future__ import annotations

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.card import cell, document
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.laws.functional_forms import FORMS
from darklode.pipeline.laws.plan_stage import PLAN_STAGE
from darklode.pipeline.laws.points import LawKey
from darklode.pipeline.laws.verdict import MAX_ERROR, MAX_INTERVAL, PLATEAU_SHARE
from darklode.schemas.law_tables import LAW_POINTS

PAGE = "laws.md"

VERDICTS_SQL = """
    SELECT measure, source, encoder, verdict, reason, form, round(held_out_error, 4) AS held_out_error,
           round(naive_error, 4) AS naive_error, points, held_out, near_chance
    FROM law_verdicts ORDER BY measure, source, encoder
"""

PREDICTIONS_SQL = """
    SELECT measure, source, encoder, fitted_to, size, parameters, round(loss, 4) AS loss,
           round(predicted, 4) AS predicted, round(low, 4) AS low, round(high, 4) AS high, part
    FROM law_predictions ORDER BY measure, source, encoder, fitted_to DESC, parameters, size
"""

FITS_SQL = """
    SELECT measure, source, encoder, form, fitted_to, chosen, points, reached || ' of ' || searched || ' of ' || starts
           AS reached, aicc, r2, round(held_out_error, 4) AS held_out_error, degenerate
    FROM law_fits ORDER BY measure, source, encoder, fitted_to DESC, aicc, form
"""

CONSTANTS_SQL = """
    SELECT measure, source, encoder, form, fitted_to, constant, format('{:.4g}', value) AS value,
           format('{:.2g}', standard_error) AS standard_error
    FROM law_constants ORDER BY measure, source, encoder, fitted_to DESC, form, constant
"""

CORRELATIONS_SQL = """
    SELECT measure, source, encoders, pearson, low, high FROM law_correlations ORDER BY measure, source
"""

TRAINED_ENCODERS_SQL = """
    SELECT trainer, encoder, parameters, source, stopped, count(DISTINCT size) AS sizes, count(DISTINCT seed) AS seeds,
           min(size) AS smallest, max(size) AS largest
    FROM law_points WHERE trainer IS NOT NULL GROUP BY ALL ORDER BY ALL
"""

PLANS_SQL = """
    SELECT measure, source, encoder, option, amount, amount_low, amount_high, unit, gain, gain_low, gain_high, money,
           money_low, money_high
    FROM law_plan ORDER BY rank
"""

COSTS_SQL = "SELECT item, value, low, high, basis FROM law_costs ORDER BY item"

DEPTH_COSTS_SQL = "FROM depth_costs ORDER BY from_rank"

NEXT_QUERIES_SQL = (
    "SELECT rank, query_id, query, reason, cluster, cluster_labels, disagreement, count FROM next_queries"
)

VERDICTS_NOTE = f"""\
For measures where more is better, the loss is 1 − value. The largest size is held out of the fits `without the
largest` and predicted: `held_out_error` is the relative error of the prediction, `naive_error` that of the forecast
"same as the size before". Places whose mean loss is above {PLATEAU_SHARE:.0%} of chance are left out. A law is claimed
without the held-out points if the loss falls, there are enough points, no constant has a lower AICc, the smaller sizes
predict the largest fitted one within {MAX_ERROR:.0%}, and the 95 % interval at the held-out size is at most
±{MAX_INTERVAL:.0%}. The claim is withdrawn if the held-out error exceeds {MAX_ERROR:.0%}. R² decides nothing.
`law_constants` has the constants in full precision."""


PLAN_NOTE = """\
Gains are in units of the measure; above 0 is better. Intervals of money follow those of the amount; prices are taken as
exact.
"""

DEPTH_NOTE = """\
Pairs by the best rank from any retriever. Ranks that are not judged yet take at least as many calls per positive as
the ranks before them, if positives are no denser there."""

N_LISTED = 30

NEXT_QUERIES_NOTE = f"""\
The most frequent query of each cluster without a label, then queries by the disagreement in their cluster, one cluster
after the other. The first {N_LISTED} of `next_queries`; all are in `next_queries.csv`. This order covers the traffic;
it was not shown to teach more than a random sample, which the laws are about."""

TRAINERS_NOTE = """\
`adapt` trains the query encoder only; `towers` trains both as `train-towers --stage 1`, so each grid point encodes all
texts again. `parameters` are those of the encoder's files without embeddings."""

CORRELATION_NOTE = """\
Pearson's coefficient over the encoders of the grid, with a 95 % bootstrap interval. The coefficient of a single source
mostly shows that both measures change with size."""


def page(run: Run) -> bytes:
    """The page in Markdown; a plan made from other points is left out."""
    tables = all_tables(run)
    forms = "\n".join(f"- `{form.name}`: {form.formula}" for form in FORMS.values())
    sections = [
        ("Is there a law?", tables.sql(VERDICTS_SQL), VERDICTS_NOTE),
        *(_plan(tables) if is_up_to_date(run, tables) else ()),
        ("Trained encoders", tables.sql(TRAINED_ENCODERS_SQL), TRAINERS_NOTE),
        ("Predictions", tables.sql(PREDICTIONS_SQL), "Intervals are for a new point and include its noise."),
        ("Contrastive entropy and ranking", tables.sql(CORRELATIONS_SQL), CORRELATION_NOTE),
        ("Forms", tables.sql(FITS_SQL), forms),
        ("Constants", tables.sql(CONSTANTS_SQL), ""),
    ]
    return document(["# Laws"], sections, []).encode()


def is_up_to_date(run: Run, tables: Tables) -> bool:
    """Whether a plan exists and was made from the current points."""
    manifest = run.manifest(PLAN_STAGE)
    return manifest is not None and manifest.inputs.get(LAW_POINTS.name) == tables.content(LAW_POINTS.name)


def _plan(tables: Tables) -> list[tuple[str, pa.Table, str]]:
    lines = "".join(f"\n- {cell(sentence)}" for sentence in plan_sentences(tables))
    return [
        ("The plan", tables.sql(PLANS_SQL), PLAN_NOTE + lines),
        ("Cost of labels", tables.sql(COSTS_SQL), ""),
        ("By pool depth", tables.sql(DEPTH_COSTS_SQL), DEPTH_NOTE),
        ("Queries to label next", tables.sql(f"{NEXT_QUERIES_SQL} ORDER BY rank LIMIT {N_LISTED}"), NEXT_QUERIES_NOTE),
    ]


def plan_sentences(tables: Tables) -> list[str]:
    """The plan as sentences."""
    return list(tables.sql("SELECT advice FROM law_plan ORDER BY rank")["advice"].to_pylist())


def law_sentences(tables: Tables) -> list[str]:
    """Each verdict as a sentence."""
    sentences = []
    for row in tables.sql(VERDICTS_SQL).to_pylist():
        reason = f", {row['reason']}" if row["reason"] else ""
        error = row["held_out_error"]
        missed = "" if error is None else f" The error at the largest size is {error:.1%}"
        naive = row["naive_error"]
        if missed:
            missed += "." if naive is None else f"; the naive forecast's is {naive:.1%}."
        key = LawKey(row["measure"], row["source"], row["encoder"])
        sentences.append(f"{key.measure}, {key.label}: {row['verdict']}{reason}.{missed}")
    return sentences
