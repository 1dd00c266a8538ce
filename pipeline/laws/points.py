"""Points of a law from a CSV or Parquet file, and as arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from darklode.pipeline.base.artifacts import Output, Stage
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.laws.forms import Floats, Points
from darklode.schemas.law_tables import LAW_POINTS

POINTS = Stage("law_points", 3, (), (LAW_POINTS.name,))

ENTROPY = "contrastive_entropy"
FALLING = (ENTROPY, "loss")
"""Measures of which less is better; of all others 1 − value is the loss."""

WANTED = ("size", "value")
UNNAMED = "labels"
"""The source of a file that names none."""


def law_points(file: str, output: Output) -> None:
    """Read a file: columns size and value, and where it has them measure, source, parameters, seed and pairs.

    Raises:
        InputError: it cannot be read, has no size or no value, or a row cannot be a point; it names the row.
    """
    given = _read(file)
    missing = [name for name in WANTED if name not in given.column_names]
    if missing:
        had = ", ".join(given.column_names)
        raise InputError(f"{file} lacks the columns {', '.join(missing)}; it has {had}")
    known = {name: given[name] for name in given.column_names if name in LAW_POINTS.schema.names}
    n = given.num_rows
    defaults = {"measure": pa.array([ENTROPY] * n, pa.string()), "source": pa.array([UNNAMED] * n, pa.string())}
    try:
        rows = LAW_POINTS.rows(defaults | known)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{file}: {error}") from error
    check(rows, file)
    output.write(LAW_POINTS.name, rows)


def _read(file: str) -> pa.Table:
    try:
        return pq.read_table(file) if file.endswith(".parquet") else csv.read_csv(Path(file))
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"{file} cannot be read: {error}") from error


def check(rows: pa.Table, where: str) -> None:
    """Make sure that each row can be a point.

    Raises:
        InputError: one cannot; it names the row, the first being 1.
    """
    with np.errstate(invalid="ignore"):
        size, loss = _numbers(rows["size"]), losses(rows)
        models = _numbers(rows["parameters"])
        bad = ~(size >= 0) | ~(loss > 0) | ~np.isfinite(loss) | (models <= 0)
    if bad.any():
        number = int(np.flatnonzero(bad)[0])
        said = "size must be 0 or more, a loss and parameters above 0, and a measure of which more is better below 1"
        raise InputError(f"{where}, row {number + 1}: {said}")


def losses(rows: pa.Table) -> Floats:
    """What falls: the value, or 1 − it where more is better."""
    value = _numbers(rows["value"])
    falling = np.asarray(pc.is_in(rows["measure"], pa.array(FALLING)).to_numpy(zero_copy_only=False), bool)
    return np.asarray(np.where(falling, value, 1 - value))


def groups(rows: pa.Table) -> list[tuple[str, str]]:
    """Measure and source of each law that is looked for, sorted."""
    found = rows.select(["measure", "source"]).group_by(["measure", "source"]).aggregate([])
    return sorted(zip(found["measure"].to_pylist(), found["source"].to_pylist(), strict=True))


def points_of(rows: pa.Table, measure: str, source: str) -> Points:
    """Those of one law, by size, model and seed."""
    mine = rows.filter(pc.and_(pc.equal(rows["measure"], measure), pc.equal(rows["source"], source)))
    mine = mine.sort_by([(name, "ascending") for name in ("size", "parameters", "seed", "value")])
    return Points(_numbers(mine["size"]), _numbers(mine["parameters"]), losses(mine))


def _numbers(column: pa.ChunkedArray) -> Floats:
    """As floats, null as NaN."""
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
