"""The laws page: verdicts, predictions, comparison of forms, constants."""

from __future__ import annotations

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.card import cell, document
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.laws.functional_forms import FORMS
from darklode.pipeline.laws.plan_stage import PLAN
from darklode.pipeline.laws.points import LawKey
from darklode.pipeline.laws.verdict import MISSED, PLATEAU, WIDE
from darklode.schemas.law_tables import LAW_POINTS

PAGE = "laws.md"

VERDICTS = """
    SELECT measure, source, encoder, verdict, reason, form, round(held_out_error, 4) AS held_out_error,
           round(naive_error, 4) AS naive_error, points, held_out, near_chance
    FROM law_verdicts ORDER BY measure, source, encoder
"""

PREDICTIONS = """
    SELECT measure, source, encoder, fitted_to, size, parameters, round(loss, 4) AS loss,
           round(predicted, 4) AS predicted, round(low, 4) AS low, round(high, 4) AS high, part
    FROM law_predictions ORDER BY measure, source, encoder, fitted_to DESC, parameters, size
"""

FITS = """
    SELECT measure, source, encoder, form, fitted_to, chosen, points, reached || ' of ' || searched || ' of ' || starts
           AS reached, aicc, r2, round(held_out_error, 4) AS held_out_error, degenerate
    FROM law_fits ORDER BY measure, source, encoder, fitted_to DESC, aicc, form
"""

CONSTANTS = """
    SELECT measure, source, encoder, form, fitted_to, constant, format('{:.4g}', value) AS value,
           format('{:.2g}', standard_error) AS standard_error
    FROM law_constants ORDER BY measure, source, encoder, fitted_to DESC, form, constant
"""

CORRELATIONS = """
    SELECT measure, source, encoders, pearson, low, high FROM law_correlations ORDER BY measure, source
"""

TRAINED = """
    SELECT trainer, encoder, parameters, source, stopped, count(DISTINCT size) AS sizes, count(DISTINCT seed) AS seeds,
           min(size) AS smallest, max(size) AS largest
    FROM law_points WHERE trainer IS NOT NULL GROUP BY ALL ORDER BY ALL
"""

PLANS = """
    SELECT measure, source, encoder, choice, amount, amount_low, amount_high, unit, gain, gain_low, gain_high, money,
           money_low, money_high
    FROM law_plan ORDER BY place
"""

COSTS = "SELECT item, value, low, high, basis FROM law_costs ORDER BY item"

DEPTHS = "FROM depth_costs ORDER BY from_rank"

BATCH = "SELECT place, query_id, query, reason, cluster, cluster_labels, disagreement, count FROM next_queries"

READING = f"""\
Losses: a measure of which more is better stands as 1 − its value. The largest size is held out from each fit
`without the largest`, and predicted: `held_out_error` is how far it is missed, `naive_error` how far "as the size
before" misses it. Places whose mean loss is above {PLATEAU:.0%} of chance are left out. A law is claimed before the
held-out point is looked at: where the loss falls, there are enough points, no constant does as well, the largest size
fitted is predicted by the smaller ones within {MISSED:.0%}, and the 95 % interval at the held-out size is at most
{WIDE:.0%} to a side; a held-out point missed by more than {MISSED:.0%} takes the claim back. R² proves nothing.
Constants stand in full precision in `law_constants`."""


PLANNING = """\
Gains are in the measure's own terms, above 0 is better; money follows the amount's interval, prices have none.
"""

DEEPER = """\
Pairs by the best rank that any retriever gave them; those that are not judged yet take at least as many calls for a
positive as the ranks before them, if positives grow no denser with depth."""

SHOWN = 30

CHOOSING = f"""\
The most asked query of each cluster without a label, then by disagreement of its cluster, cluster by cluster in turns;
the first {SHOWN} of `next_queries`, all of which stand in `next_queries.csv`. This covers what is asked;
what it teaches could not be told from what drawn queries teach, of which laws speak."""

GIVEN = """\
`adapt` moves queries alone; `towers` are both of `train-towers --stage 1`, so that texts are encoded anew by each cell.
`parameters` are those of the encoder's files without embeddings."""

CORRELATED = """\
Pearson's coefficient over the encoders of the grid, with a 95 % bootstrap interval over them; that of one source mostly
says that both change with size."""


def page(run: Run) -> bytes:
    """The page in Markdown; a plan made from other points is left out."""
    tables = all_tables(run)
    forms = "\n".join(f"- `{form.name}`: {form.formula}" for form in FORMS.values())
    sections = [
        ("Is there a law?", tables.sql(VERDICTS), READING),
        *(_plan(tables) if is_up_to_date(run, tables) else ()),
        ("What was trained", tables.sql(TRAINED), GIVEN),
        ("Predicted", tables.sql(PREDICTIONS), "Intervals are of a new point: its own noise is in them."),
        ("Contrastive entropy and ranking", tables.sql(CORRELATIONS), CORRELATED),
        ("Forms", tables.sql(FITS), forms),
        ("Constants", tables.sql(CONSTANTS), ""),
    ]
    return document(["# Laws"], sections, []).encode()


def is_up_to_date(run: Run, tables: Tables) -> bool:
    """Whether a plan exists and was made from the current points."""
    manifest = run.manifest(PLAN)
    return manifest is not None and manifest.inputs.get(LAW_POINTS.name) == tables.content(LAW_POINTS.name)


def _plan(tables: Tables) -> list[tuple[str, pa.Table, str]]:
    lines = "".join(f"\n- {cell(sentence)}" for sentence in plan_sentences(tables))
    return [
        ("The plan", tables.sql(PLANS), PLANNING + lines),
        ("What labels took", tables.sql(COSTS), ""),
        ("By depth of the pool", tables.sql(DEPTHS), DEEPER),
        ("To label next", tables.sql(f"{BATCH} ORDER BY place LIMIT {SHOWN}"), CHOOSING),
    ]


def plan_sentences(tables: Tables) -> list[str]:
    """The plan as sentences."""
    return list(tables.sql("SELECT said FROM law_plan ORDER BY place")["said"].to_pylist())


def law_sentences(tables: Tables) -> list[str]:
    """Each verdict as a sentence."""
    sentences = []
    for row in tables.sql(VERDICTS).to_pylist():
        reason = f", {row['reason']}" if row["reason"] else ""
        error = row["held_out_error"]
        missed = "" if error is None else f" The largest size is missed by {error:.1%}"
        naive = row["naive_error"]
        if missed:
            missed += "." if naive is None else f", by {naive:.1%} if nothing changed."
        key = LawKey(row["measure"], row["source"], row["encoder"])
        sentences.append(f"{key.measure}, {key.label}: {row['verdict']}{reason}.{missed}")
    return sentences
