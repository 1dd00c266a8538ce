"""Read the points of a law from CSV or Parquet, and convert them to arrays."""

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
from darklode.pipeline.base.types import Doubles
from darklode.pipeline.laws.functional_forms import LawPoints
from darklode.schemas.law_tables import LAW_POINTS

POINTS = Stage("law_points", 4, (), (LAW_POINTS.name,))

ENTROPY = "contrastive_entropy"
FALLING = (ENTROPY, "loss")
"""Measures of which less is better; for all others the loss is 1 − value."""

REQUIRED_COLUMNS = ("size", "value")
UNKNOWN = "unnamed encoder"
"""Encoder name of rows without one, in a file where others have one."""

DEFAULT_SOURCE = "labels"
"""Source name if the file has no source column."""


def law_points(file: str, output: Output) -> None:
    """Read a file with the columns size and value, and optionally the others of `law_points`.

    Raises:
        InputError: the file cannot be read, lacks size or value, or has an invalid row; the message names the row.
    """
    rows_read = _read(file)
    missing = [name for name in REQUIRED_COLUMNS if name not in rows_read.column_names]
    if missing:
        had = ", ".join(rows_read.column_names)
        raise InputError(f"{file} misses the columns {', '.join(missing)}; found {had}")
    columns = {name: rows_read[name] for name in rows_read.column_names if name in LAW_POINTS.schema.names}
    n = rows_read.num_rows
    defaults = {"measure": pa.array([ENTROPY] * n, pa.string()), "source": pa.array([DEFAULT_SOURCE] * n, pa.string())}
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
    """Validate every row.

    Raises:
        InputError: names the first invalid row, counting from 1.
    """
    with np.errstate(invalid="ignore"):
        size, loss = _numbers(rows["size"]), losses(rows)
        models = _numbers(rows["parameters"])
        bad = ~(size >= 0) | ~(loss > 0) | ~np.isfinite(loss) | (models <= 0)
    if bad.any():
        number = int(np.flatnonzero(bad)[0])
        rule = "size must be 0 or more, a loss and parameters above 0, and a measure of which more is better below 1"
        raise InputError(f"{where}, row {number + 1}: {rule}")


def losses(rows: pa.Table) -> Doubles:
    """The loss of each row: the value, or 1 − value if more is better."""
    value = _numbers(rows["value"])
    falling = np.asarray(pc.is_in(rows["measure"], pa.array(FALLING)).to_numpy(zero_copy_only=False), bool)
    return np.asarray(np.where(falling, value, 1 - value))


class LawKey(NamedTuple):
    """Identifies the points that one law is fitted to.

    Attributes:
        measure: what is measured.
        source: of the labels.
        encoder: name, or full identity if two encoders share a name; None: all encoders of the source, told apart by
            their parameters.
    """

    measure: str
    source: str
    encoder: str | None = None

    @property
    def label(self) -> str:
        """Source and encoder for display."""
        return self.source if self.encoder is None else f"{self.source}, {self.encoder}"


def groups(rows: pa.Table) -> list[LawKey]:
    """The laws to fit, sorted.

    Encoders share a law only if each has a known and distinct number of parameters; otherwise a fit would treat the
    difference between two encoders as noise, so each gets its own law.
    """
    key_rows = rows.select(["measure", "source"]).group_by(["measure", "source"]).aggregate([])
    every = sorted(zip(key_rows["measure"].to_pylist(), key_rows["source"].to_pylist(), strict=True))
    return [
        LawKey(*measure_source, encoder)
        for measure_source in every
        for encoder in _encoders(_of_source(rows, *measure_source))
    ]


def rows_of(rows: pa.Table, key: LawKey) -> pa.Table:
    source_rows = _of_source(rows, key.measure, key.source)
    return (
        source_rows
        if key.encoder is None
        else source_rows.filter(pc.equal(pa.chunked_array([_names(source_rows)]), key.encoder))
    )


def points_of(rows: pa.Table, key: LawKey) -> LawPoints:
    """The points of one law, ordered by size, model and seed."""
    sorted_rows = rows_of(rows, key).sort_by([(name, "ascending") for name in ("size", "parameters", "seed", "value")])
    return LawPoints(_numbers(sorted_rows["size"]), _numbers(sorted_rows["parameters"]), losses(sorted_rows))


def _of_source(rows: pa.Table, measure: str, source: str) -> pa.Table:
    return rows.filter(pc.and_(pc.equal(rows["measure"], measure), pc.equal(rows["source"], source)))


def _encoders(rows: pa.Table) -> list[str | None]:
    """None if all encoders of the source may share a law, else the name of each."""
    names = _names(rows)
    pairs = pa.table({"encoder": names, "parameters": rows["parameters"]})
    different = pairs.group_by(["encoder", "parameters"]).aggregate([])
    n_parameters = different["parameters"].drop_null()
    has_several = pc.count_distinct(names, mode="all").as_py() > 1
    if not has_several or (len(n_parameters) == different.num_rows == len(pc.unique(n_parameters))):
        return [None]
    return sorted(names.unique().to_pylist())


def _names(rows: pa.Table) -> pa.Array:
    """Each row's encoder: its name, its identity if the name is ambiguous, or `UNKNOWN`."""
    ids = pc.coalesce(rows["encoder_id"], rows["encoder"], UNKNOWN)
    names = pc.coalesce(rows["encoder"], rows["encoder_id"], UNKNOWN)
    id_names = pa.table({"id": ids, "name": names}).group_by(["id", "name"]).aggregate([])
    by_name = id_names.group_by("name").aggregate([("id", "count_distinct")])
    by_id = id_names.group_by("id").aggregate([("name", "count_distinct")])
    twice = by_name.filter(pc.greater(by_name["id_count_distinct"], 1))["name"]
    renamed = by_id.filter(pc.greater(by_id["name_count_distinct"], 1))["id"]
    ambiguous = pc.or_(pc.is_in(names, value_set=twice), pc.is_in(ids, value_set=renamed))
    return pc.if_else(ambiguous, ids, names).combine_chunks()


def _numbers(column: pa.ChunkedArray) -> Doubles:
    """As floats, null as NaN."""
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
