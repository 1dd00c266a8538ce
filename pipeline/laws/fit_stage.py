"""The stage `fit_laws`: fits, constants, predictions and a verdict for each measure and label source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.finite import finite_or_none
from darklode.pipeline.base.types import Doubles, Row
from darklode.pipeline.laws.correlation import correlations
from darklode.pipeline.laws.curve_fitting import N_REFINED, Fit
from darklode.pipeline.laws.functional_forms import LawPoints
from darklode.pipeline.laws.points import ENTROPY_MEASURE, N_NEGATIVES, LawKey, groups, points_of
from darklode.pipeline.laws.prediction_intervals import confidence_band
from darklode.pipeline.laws.verdict import LawResult, find_law, from_recorded, prediction_error
from darklode.schemas.law_tables import (
    LAW_CONSTANTS,
    LAW_CORRELATIONS,
    LAW_FITS,
    LAW_POINTS,
    LAW_PREDICTIONS,
    LAW_VERDICTS,
)

FIT_STAGE = Stage(
    "laws",
    7,
    (LAW_POINTS.name,),
    (LAW_FITS.name, LAW_CONSTANTS.name, LAW_PREDICTIONS.name, LAW_VERDICTS.name, LAW_CORRELATIONS.name),
)

CHANCE_LOSSES = {ENTROPY_MEASURE: float(np.log(1 + N_NEGATIVES))}
"""Chance loss, by measure: that of an encoder that scores all texts alike. Measures without one have no plateau."""

WITHOUT_LARGEST, ALL_POINTS = "without the largest", "all"
"""Values of `fitted_to`: the fits that are tested on the held-out largest points, and an accepted law's final fit."""

RESAMPLES = 100
"""Number of refits to simulated data per interval; see `prediction_intervals`."""


def write_law_fits(tables: Tables, output: Output, *, seed: int) -> None:
    """Look for a law in the points of each measure and source, and of each encoder if encoders cannot share a law.

    Writes `law_fits`, `law_constants`, `law_predictions`, `law_verdicts` and `law_correlations`.
    """
    rows = tables.read(LAW_POINTS.name)
    keys = groups(rows)
    for number, key in enumerate(keys):
        output.progress(number, len(keys), f"{key.measure}, {key.label}")
        points = points_of(rows, key)
        result = find_law(points, CHANCE_LOSSES.get(key.measure), RESAMPLES, seed)
        _write(output, key._asdict(), points, result, seed)
    output.write(LAW_CORRELATIONS.name, correlations(tables, seed))
    output.count(FunnelStep(FIT_STAGE.name, "points", rows.num_rows, "laws looked for", len(keys)))


def accepted_laws(tables: Tables) -> dict[LawKey, LawResult]:
    """The recorded result of each law, rebuilt without fitting again."""
    rows = tables.read(LAW_POINTS.name)
    rows_by_key = {
        LawKey(row["measure"], row["source"], row["encoder"]): row for row in tables.read(LAW_VERDICTS.name).to_pylist()
    }
    return {
        key: from_recorded(points_of(rows, key), CHANCE_LOSSES.get(key.measure), rows_by_key[key])
        for key in groups(rows)
    }


def _write(output: Output, key_columns: Row, points: LawPoints, result: LawResult, seed: int) -> None:
    """Write the rows of one law to all tables of the stage, each with the law's key columns."""
    held_out = points.take(result.held_out)
    fits = [(fit, WITHOUT_LARGEST) for fit in result.fits] + (
        [(result.full_fit, ALL_POINTS)] if result.full_fit else []
    )
    for fit, fitted_to in fits:
        fit_columns = key_columns | {"form": fit.form.name, "fitted_to": fitted_to}
        fit_row = _fit_row(fit, result, held_out if fitted_to == WITHOUT_LARGEST else None)
        output.write(LAW_FITS.name, _rows(LAW_FITS, [fit_columns | fit_row]))
        output.write(LAW_CONSTANTS.name, _rows(LAW_CONSTANTS, [fit_columns | row for row in _constants(fit)]))
    predictions = [key_columns | row for row in _predictions(result, seed)]
    output.write(LAW_PREDICTIONS.name, _rows(LAW_PREDICTIONS, predictions))
    counts = {"points": len(points), "held_out": int(result.held_out.sum()), "near_chance": int(result.plateau.sum())}
    verdict = {"verdict": result.verdict, "reason": result.reason, "claimed": result.claimed}
    errors = {"held_out_error": finite_or_none(result.error), "naive_error": finite_or_none(result.naive)}
    form = {"form": result.chosen.form.name if result.chosen else None}
    output.write(LAW_VERDICTS.name, _rows(LAW_VERDICTS, [key_columns | verdict | form | errors | counts]))


def _fit_row(fit: Fit, result: LawResult, held_out: LawPoints | None) -> Row:
    """Columns of `law_fits` for a fit; `held_out` is None for a fit that has used these points."""
    return {
        "chosen": result.chosen is not None and fit.form is result.chosen.form,
        "points": len(fit.points),
        "loss": fit.loss,
        "starts": fit.starts,
        "searched": min(fit.starts, N_REFINED),
        "reached": fit.n_optima,
        "aicc": finite_or_none(fit.aicc),
        "r2": finite_or_none(fit.r2),
        "held_out_error": None if held_out is None else finite_or_none(prediction_error(fit, held_out)),
        "degenerate": "; ".join(fit.form.bounds_hit(fit.at, fit.frame)) or None,
    }


def _constants(fit: Fit) -> list[Row]:
    """Columns of `law_constants`, a row per constant; errors are null if the fit has too few points for them."""
    covariance = fit.covariance()
    has_covariance = not np.isnan(covariance).any()
    return [
        {
            "constant": name,
            "value": value,
            "standard_error": float(np.sqrt(max(covariance[index, index], 0.0))) if has_covariance else None,
            "covariance": covariance[index].tolist() if has_covariance else None,
        }
        for index, (name, value) in enumerate(fit.constants.items())
    ]


def _predictions(result: LawResult, seed: int) -> list[Row]:
    """Columns of `law_predictions`: by the chosen fit, and by an accepted law's final fit, which is extrapolated."""
    if result.chosen is None or result.ends is None:
        return []
    parts = np.where(result.plateau_of_places, "near to chance", np.where(result.held_places, "held out", "fitted"))
    rows = _prediction_rows(
        result.chosen, result.places, result.ends, WITHOUT_LARGEST, list(parts), result.mean_loss.tolist()
    )
    if result.full_fit is not None:
        places, n_extrapolated = _extrapolated_points(result.places)
        ends = np.stack(confidence_band(result.full_fit, places, RESAMPLES, seed))
        observed = [*result.mean_loss.tolist(), *[None] * n_extrapolated]
        all_parts = [*parts, *["not measured"] * n_extrapolated]
        rows += _prediction_rows(result.full_fit, places, ends, ALL_POINTS, all_parts, observed)
    return rows


def _prediction_rows(
    fit: Fit, places: LawPoints, ends: Doubles, fitted_to: str, parts: list[str], observed: list[float | None]
) -> list[Row]:
    """Columns of `law_predictions`, a row per place.

    Args:
        fit: the fit that predicts.
        places: sizes and models, n of them.
        ends: lower and upper ends of the 95 % intervals, shape (2, n).
        fitted_to: `WITHOUT_LARGEST` or `ALL_POINTS`.
        parts: how the verdict used each place.
        observed: mean loss at each place; None if it was not measured.
    """
    return [
        {
            "fitted_to": fitted_to,
            "size": int(places.size[row]),
            "parameters": finite_or_none(places.parameters[row]),
            "loss": observed[row],
            "predicted": float(predicted),
            "low": finite_or_none(ends[0, row]),
            "high": finite_or_none(ends[1, row]),
            "part": str(parts[row]),
        }
        for row, predicted in enumerate(fit.predict(places))
    ]


def _extrapolated_points(places: LawPoints) -> tuple[LawPoints, int]:
    """The places plus, for each model, two and four times the largest size; and the number of added places.

    Nothing is added if all places have the same size, because then the law says nothing about sizes.
    """
    if len(np.unique(places.size)) == 1:
        return places, 0
    model_sizes = np.unique(places.parameters)
    max_size = places.size.max()
    sizes = np.concatenate([places.size, np.repeat([2 * max_size, 4 * max_size], len(model_sizes))])
    parameters = np.concatenate([places.parameters, np.tile(model_sizes, 2)])
    return places.with_sizes(sizes, parameters), 2 * len(model_sizes)


def _rows(table: Any, rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=table.schema)
