"""The stage that looks for a law in each measure and source: fits, constants, predictions and a verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.laws.bands import band
from darklode.pipeline.laws.correlation import correlations
from darklode.pipeline.laws.fitting import KEPT, Fit
from darklode.pipeline.laws.forms import Floats, Points
from darklode.pipeline.laws.points import ENTROPY, LawKey, groups, points_of
from darklode.pipeline.laws.verdict import Found, judge, missed, recalled
from darklode.schemas.law_tables import (
    LAW_CONSTANTS,
    LAW_CORRELATIONS,
    LAW_FITS,
    LAW_POINTS,
    LAW_PREDICTIONS,
    LAW_VERDICTS,
)

FIT = Stage(
    "laws",
    7,
    (LAW_POINTS.name,),
    (LAW_FITS.name, LAW_CONSTANTS.name, LAW_PREDICTIONS.name, LAW_VERDICTS.name, LAW_CORRELATIONS.name),
)

NEGATIVES = 256
"""Texts that a positive is held against (Scaling Laws for Dense Retrieval, Eq. 6)."""

CHANCE = {ENTROPY: float(np.log(1 + NEGATIVES))}
"""The loss of an encoder that knows nothing, by measure."""

WITHOUT, ALL = "without the largest", "all"
RESAMPLES = 100

Row = dict[str, Any]


def laws(tables: Tables, output: Output, *, seed: int) -> None:
    """Look for a law in the points of each measure and source, and of each encoder where encoders cannot share a law.

    Args:
        tables: holds `law_points`.
        output: takes `law_fits`, `law_constants`, `law_predictions`, `law_verdicts` and `law_correlations`.
        seed: of the resamples.
    """
    rows = tables.read(LAW_POINTS.name)
    every = groups(rows)
    for number, key in enumerate(every):
        output.progress(number, len(every), f"{key.measure}, {key.label}")
        points = points_of(rows, key)
        found = judge(points, CHANCE.get(key.measure), RESAMPLES, seed)
        _write(output, key._asdict(), points, found, seed)
    output.write(LAW_CORRELATIONS.name, correlations(tables, seed))
    output.count(FunnelStep(FIT.name, "points", rows.num_rows, "laws looked for", len(every)))


def standing(tables: Tables) -> dict[LawKey, Found]:
    """What the stage found of each law, without looking for it again.

    Args:
        tables: holds `law_points` and `law_verdicts`.
    """
    rows = tables.read(LAW_POINTS.name)
    said = {
        LawKey(row["measure"], row["source"], row["encoder"]): row for row in tables.read(LAW_VERDICTS.name).to_pylist()
    }
    return {key: recalled(points_of(rows, key), CHANCE.get(key.measure), said[key]) for key in groups(rows)}


def _write(output: Output, named: Row, points: Points, found: Found, seed: int) -> None:
    beyond = points.take(found.held)
    fits = [(one, WITHOUT) for one in found.fits] + ([(found.whole, ALL)] if found.whole else [])
    for one, to in fits:
        about = named | {"form": one.form.name, "fitted_to": to}
        output.write(LAW_FITS.name, _rows(LAW_FITS, [about | _fit(one, found, beyond if to == WITHOUT else None)]))
        output.write(LAW_CONSTANTS.name, _rows(LAW_CONSTANTS, [about | row for row in _constants(one)]))
    output.write(LAW_PREDICTIONS.name, _rows(LAW_PREDICTIONS, [named | row for row in _predictions(found, seed)]))
    counts = {"points": len(points), "held_out": int(found.held.sum()), "near_chance": int(found.plateau.sum())}
    verdict = {"verdict": found.verdict, "reason": found.reason, "claimed": found.claimed}
    errors = {"held_out_error": _known(found.error), "naive_error": _known(found.naive)}
    form = {"form": found.chosen.form.name if found.chosen else None}
    output.write(LAW_VERDICTS.name, _rows(LAW_VERDICTS, [named | verdict | form | errors | counts]))


def _fit(one: Fit, found: Found, beyond: Points | None) -> Row:
    return {
        "chosen": found.chosen is not None and one.form is found.chosen.form,
        "points": len(one.points),
        "loss": one.loss,
        "starts": one.starts,
        "searched": min(one.starts, KEPT),
        "reached": one.reached,
        "aicc": _known(one.aicc),
        "r2": _known(one.r2),
        "held_out_error": None if beyond is None else _known(missed(one, beyond)),
        "degenerate": "; ".join(one.form.ends(one.at, one.frame)) or None,
    }


def _constants(one: Fit) -> list[Row]:
    spread = one.covariance()
    told = not np.isnan(spread).any()
    return [
        {
            "constant": name,
            "value": value,
            "standard_error": float(np.sqrt(max(spread[place, place], 0.0))) if told else None,
            "covariance": spread[place].tolist() if told else None,
        }
        for place, (name, value) in enumerate(one.constants.items())
    ]


def _predictions(found: Found, seed: int) -> list[Row]:
    """Of each place, and where a law stands of sizes beyond."""
    if found.chosen is None or found.ends is None:
        return []
    part = np.where(found.plateau_of_places, "near to chance", np.where(found.held_places, "held out", "fitted"))
    rows = _told(found.chosen, found.places, found.ends, WITHOUT, list(part), found.seen.tolist())
    if found.whole is not None:
        places, extra = _beyond(found.places)
        ends = np.stack(band(found.whole, places, RESAMPLES, seed))
        seen = [*found.seen.tolist(), *[None] * extra]
        rows += _told(found.whole, places, ends, ALL, [*part, *["not measured"] * extra], seen)
    return rows


def _told(one: Fit, places: Points, ends: Floats, to: str, part: list[str], seen: list[float | None]) -> list[Row]:
    return [
        {
            "fitted_to": to,
            "size": int(places.size[at]),
            "parameters": _known(places.parameters[at]),
            "loss": seen[at],
            "predicted": float(predicted),
            "low": _known(ends[0, at]),
            "high": _known(ends[1, at]),
            "part": str(part[at]),
        }
        for at, predicted in enumerate(one.predict(places))
    ]


def _beyond(places: Points) -> tuple[Points, int]:
    """With two and four times the largest size, of each model, where sizes vary; and how many these are."""
    if len(np.unique(places.size)) == 1:
        return places, 0
    models, most = np.unique(places.parameters), places.size.max()
    size = np.concatenate([places.size, np.repeat([2 * most, 4 * most], len(models))])
    return places.at(size, np.concatenate([places.parameters, np.tile(models, 2)])), 2 * len(models)


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _rows(table: Any, rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=table.schema)
