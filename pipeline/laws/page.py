"""The page on laws: verdicts first, then what is predicted, the forms against one another, and their constants."""

from __future__ import annotations

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.card import document
from darklode.pipeline.laws.forms import FORMS
from darklode.pipeline.laws.verdict import MISSED, PLATEAU, WIDE
from darklode.schemas.law_tables import LAWS

PAGE = "laws.md"

VERDICTS = """
    SELECT measure, source, verdict, reason, form, round(held_out_error, 4) AS held_out_error,
           round(naive_error, 4) AS naive_error, points, held_out, near_chance
    FROM law_verdicts ORDER BY measure, source
"""

PREDICTIONS = """
    SELECT measure, source, fitted_to, size, parameters, round(loss, 4) AS loss, round(predicted, 4) AS predicted,
           round(low, 4) AS low, round(high, 4) AS high, part
    FROM law_predictions ORDER BY measure, source, fitted_to DESC, parameters, size
"""

FITS = """
    SELECT measure, source, form, fitted_to, chosen, points, reached || ' of ' || searched || ' of ' || starts
           AS reached, aicc, r2, round(held_out_error, 4) AS held_out_error, degenerate
    FROM law_fits ORDER BY measure, source, fitted_to DESC, aicc, form
"""

CONSTANTS = """
    SELECT measure, source, form, fitted_to, constant, format('{:.4g}', value) AS value,
           format('{:.2g}', standard_error) AS standard_error
    FROM law_constants ORDER BY measure, source, fitted_to DESC, form, constant
"""

CORRELATIONS = """
    SELECT measure, source, encoders, pearson, low, high FROM law_correlations ORDER BY measure, source
"""

READING = f"""\
Losses: a measure of which more is better stands as 1 − its value. The largest size is held out from each fit
`without the largest`, and predicted: `held_out_error` is how far it is missed, `naive_error` how far "as the size
before" misses it. Places whose mean loss is above {PLATEAU:.0%} of chance are left out. A law is claimed before the
held-out point is looked at: where the loss falls, there are enough points, no constant does as well, the largest size
fitted is predicted by the smaller ones within {MISSED:.0%}, and the 95 % interval at the held-out size is at most
{WIDE:.0%} to a side; a held-out point missed by more than {MISSED:.0%} takes the claim back. R² proves nothing.
Constants stand in full precision in `law_constants`."""


CORRELATED = """\
Pearson's coefficient over the encoders of the grid, with a 95 % bootstrap interval over them; that of one source mostly
says that both change with size."""


def page(run: Run) -> bytes:
    """The page, in Markdown."""
    tables = run.tables(*(table.name for table in LAWS))
    forms = "\n".join(f"- `{form.name}`: {form.formula}" for form in FORMS.values())
    found = [
        ("Is there a law?", tables.sql(VERDICTS), READING),
        ("Predicted", tables.sql(PREDICTIONS), "Intervals are of a new point: its own noise is in them."),
        ("Contrastive entropy and ranking", tables.sql(CORRELATIONS), CORRELATED),
        ("Forms", tables.sql(FITS), forms),
        ("Constants", tables.sql(CONSTANTS), ""),
    ]
    return document(["# Laws"], found, []).encode()


def told(tables: Tables) -> list[str]:
    """Each verdict, in a sentence."""
    found = []
    for row in tables.sql(VERDICTS).to_pylist():
        reason = f", {row['reason']}" if row["reason"] else ""
        error = row["held_out_error"]
        missed = "" if error is None else f" The largest size is missed by {error:.1%}"
        naive = row["naive_error"]
        if missed:
            missed += "." if naive is None else f", by {naive:.1%} if nothing changed."
        found.append(f"{row['measure']}, {row['source']}: {row['verdict']}{reason}.{missed}")
    return found
