"""Points of a law from a CSV or Parquet file, and as arrays."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from darklode.pipeline.base.artifacts import Output, Stage
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.laws.forms import Floats, LawPoints
from darklode.schemas.law_tables import LAW_POINTS

POINTS = Stage("law_points", 4, (), (LAW_POINTS.name,))

ENTROPY = "contrastive_entropy"
FALLING = (ENTROPY, "loss")
"""Measures of which less is better; of all others 1 − value is the loss."""

WANTED = ("size", "value")
UNKNOWN = "unnamed encoder"
"""Of rows that name none, beside rows that do."""

UNNAMED = "labels"
"""The source of a file that names none."""


def law_points(file: str, output: Output) -> None:
    """Read a file: columns size and value, and where it has them those of `law_points`.

    Raises:
        InputError: it cannot be read, has no size or no value, or a row cannot be a point; it names the row.
    """
    rows_read = _read(file)
    missing = [name for name in WANTED if name not in rows_read.column_names]
    if missing:
        had = ", ".join(rows_read.column_names)
        raise InputError(f"{file} lacks the columns {', '.join(missing)}; it has {had}")
    columns = {name: rows_read[name] for name in rows_read.column_names if name in LAW_POINTS.schema.names}
    n = rows_read.num_rows
    defaults = {"measure": pa.array([ENTROPY] * n, pa.string()), "source": pa.array([UNNAMED] * n, pa.string())}
    try:
        rows = LAW_POINTS.rows(defaults | columns)
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
        rule = "size must be 0 or more, a loss and parameters above 0, and a measure of which more is better below 1"
        raise InputError(f"{where}, row {number + 1}: {rule}")


def losses(rows: pa.Table) -> Floats:
    """What falls: the value, or 1 − it where more is better."""
    value = _numbers(rows["value"])
    falling = np.asarray(pc.is_in(rows["measure"], pa.array(FALLING)).to_numpy(zero_copy_only=False), bool)
    return np.asarray(np.where(falling, value, 1 - value))


class LawKey(NamedTuple):
    """Whose points a law is fitted to.

    Attributes:
        measure: what falls.
        source: of the labels.
        encoder: the only one, by its name, or by its full identity where another one has the same name; None: all
            encoders of the source, told apart by their parameters.
    """

    measure: str
    source: str
    encoder: str | None = None

    @property
    def label(self) -> str:
        """Source and encoder, to show."""
        return self.source if self.encoder is None else f"{self.source}, {self.encoder}"


def groups(rows: pa.Table) -> list[LawKey]:
    """Each law that is looked for, sorted.

    A law may have several encoders only if each has a known number of parameters that no other has; otherwise a fit
    would take the difference between two encoders for noise, and each encoder gets a law of its own.
    """
    key_rows = rows.select(["measure", "source"]).group_by(["measure", "source"]).aggregate([])
    every = sorted(zip(key_rows["measure"].to_pylist(), key_rows["source"].to_pylist(), strict=True))
    return [
        LawKey(*measure_source, encoder)
        for measure_source in every
        for encoder in _encoders(_of_source(rows, *measure_source))
    ]


def rows_of(rows: pa.Table, key: LawKey) -> pa.Table:
    """The points of one law."""
    source_rows = _of_source(rows, key.measure, key.source)
    return (
        source_rows
        if key.encoder is None
        else source_rows.filter(pc.equal(pa.chunked_array([_names(source_rows)]), key.encoder))
    )


def points_of(rows: pa.Table, key: LawKey) -> LawPoints:
    """Those of one law, by size, model and seed."""
    sorted_rows = rows_of(rows, key).sort_by([(name, "ascending") for name in ("size", "parameters", "seed", "value")])
    return LawPoints(_numbers(sorted_rows["size"]), _numbers(sorted_rows["parameters"]), losses(sorted_rows))


def _of_source(rows: pa.Table, measure: str, source: str) -> pa.Table:
    return rows.filter(pc.and_(pc.equal(rows["measure"], measure), pc.equal(rows["source"], source)))


def _encoders(rows: pa.Table) -> list[str | None]:
    """Of the points of one source: None where all may share a law, else each encoder's name."""
    names = _names(rows)
    pairs = pa.table({"encoder": names, "parameters": rows["parameters"]})
    different = pairs.group_by(["encoder", "parameters"]).aggregate([])
    n_parameters = different["parameters"].drop_null()
    several = pc.count_distinct(names, mode="all").as_py() > 1
    if not several or (len(n_parameters) == different.num_rows == len(pc.unique(n_parameters))):
        return [None]
    return sorted(names.unique().to_pylist())


def _names(rows: pa.Table) -> pa.Array:
    """Each row's encoder: its name, or its identity where two encoders have one name; UNKNOWN where nobody says."""
    ids = pc.coalesce(rows["encoder_id"], rows["encoder"], UNKNOWN)
    names = pc.coalesce(rows["encoder"], rows["encoder_id"], UNKNOWN)
    both = pa.table({"id": ids, "name": names}).group_by(["id", "name"]).aggregate([])
    by_name = both.group_by("name").aggregate([("id", "count_distinct")])
    by_id = both.group_by("id").aggregate([("name", "count_distinct")])
    twice = by_name.filter(pc.greater(by_name["id_count_distinct"], 1))["name"]
    renamed = by_id.filter(pc.greater(by_id["name_count_distinct"], 1))["id"]
    ambiguous = pc.or_(pc.is_in(names, value_set=twice), pc.is_in(ids, value_set=renamed))
    return pc.if_else(ambiguous, ids, names).combine_chunks()


def _numbers(column: pa.ChunkedArray) -> Floats:
    """As floats, null as NaN."""
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
