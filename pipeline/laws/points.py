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

POINTS_STAGE = Stage("law_points", 5, (), (LAW_POINTS.name,))

ENTROPY_MEASURE = "contrastive_entropy"
N_NEGATIVES = 256
"""W of contrastive entropy, sampled negatives per positive: 256 in Scaling Laws for Dense Retrieval (Eq. 6).
It fixes the entropy of chance; entropies of different W are not comparable."""

LOWER_IS_BETTER = (ENTROPY_MEASURE, "loss")
"""Measures of which less is better, so that their value is the loss; for all others the loss is 1 − value."""

REQUIRED_COLUMNS = ("size", "value")
"""Columns without a default in an imported file."""

UNNAMED_ENCODER = "unnamed encoder"
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
        present = ", ".join(rows_read.column_names)
        raise InputError(f"{file} misses the columns {', '.join(missing)}; found {present}")
    columns = {name: rows_read[name] for name in rows_read.column_names if name in LAW_POINTS.schema.names}
    n = rows_read.num_rows
    defaults = {
        "measure": pa.array([ENTROPY_MEASURE] * n, pa.string()),
        "source": pa.array([DEFAULT_SOURCE] * n, pa.string()),
    }
    try:
        rows = LAW_POINTS.rows(defaults | columns)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{file}: {error}") from error
    check(rows, file)
    output.write(LAW_POINTS.name, rows)


def _read(file: str) -> pa.Table:
    """Read a Parquet file by its ending, anything else as CSV."""
    try:
        return pq.read_table(file) if file.endswith(".parquet") else csv.read_csv(Path(file))
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"{file} cannot be read: {error}") from error


def check(rows: pa.Table, where: str) -> None:
    """Validate every row of `law_points`.

    Args:
        rows: the table to check.
        where: where the rows come from, for the error message.

    Raises:
        InputError: names the first invalid row, counting from 1.
    """
    with np.errstate(invalid="ignore"):
        size = _numbers(rows["size"])
        loss = losses(rows)
        parameters = _numbers(rows["parameters"])
        # NaN fails ~(x >= 0), so an unknown size is invalid; unknown parameters pass (x <= 0).
        is_invalid = ~(size >= 0) | ~(loss > 0) | ~np.isfinite(loss) | (parameters <= 0)
    if is_invalid.any():
        first_invalid = int(np.flatnonzero(is_invalid)[0])
        rule = "size must be 0 or more, a loss and parameters above 0, and a measure of which more is better below 1"
        raise InputError(f"{where}, row {first_invalid + 1}: {rule}")


def losses(rows: pa.Table) -> Doubles:
    """The loss of each row, shape (n_rows,): the value, or 1 − value if more is better; null becomes NaN."""
    value = _numbers(rows["value"])
    is_loss = np.asarray(pc.is_in(rows["measure"], pa.array(LOWER_IS_BETTER)).to_numpy(zero_copy_only=False), bool)
    return np.asarray(np.where(is_loss, value, 1 - value))


class LawKey(NamedTuple):
    """Identifies the points that one law is fitted to.

    Attributes:
        measure: the measure, for example `nDCG@10`.
        source: the source of the training labels.
        encoder: the encoder's name, or its full identity if two encoders share a name; None for all encoders of the
            source, which are told apart by their parameters.
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
    distinct = rows.select(["measure", "source"]).group_by(["measure", "source"]).aggregate([])
    measure_sources = sorted(zip(distinct["measure"].to_pylist(), distinct["source"].to_pylist(), strict=True))
    return [
        LawKey(*measure_source, encoder)
        for measure_source in measure_sources
        for encoder in _encoders(_rows_of_source(rows, *measure_source))
    ]


def rows_of(rows: pa.Table, key: LawKey) -> pa.Table:
    """The rows of one law."""
    source_rows = _rows_of_source(rows, key.measure, key.source)
    if key.encoder is None:
        return source_rows
    encoder_names = pa.chunked_array([_encoder_names(source_rows)])
    return source_rows.filter(pc.equal(encoder_names, key.encoder))


def points_of(rows: pa.Table, key: LawKey) -> LawPoints:
    """The points of one law, ordered by size, model and seed."""
    sorted_rows = rows_of(rows, key).sort_by([(name, "ascending") for name in ("size", "parameters", "seed", "value")])
    return LawPoints(_numbers(sorted_rows["size"]), _numbers(sorted_rows["parameters"]), losses(sorted_rows))


def _rows_of_source(rows: pa.Table, measure: str, source: str) -> pa.Table:
    return rows.filter(pc.and_(pc.equal(rows["measure"], measure), pc.equal(rows["source"], source)))


def _encoders(rows: pa.Table) -> list[str | None]:
    """[None] if all encoders of the source may share a law, otherwise the sorted name of each."""
    names = _encoder_names(rows)
    encoders = pa.table({"encoder": names, "parameters": rows["parameters"]})
    encoders = encoders.group_by(["encoder", "parameters"]).aggregate([])
    known_parameters = encoders["parameters"].drop_null()
    has_several = pc.count_distinct(names, mode="all").as_py() > 1
    has_distinct_parameters = len(known_parameters) == encoders.num_rows == len(pc.unique(known_parameters))
    if not has_several or has_distinct_parameters:
        return [None]
    return sorted(names.unique().to_pylist())


def _encoder_names(rows: pa.Table) -> pa.Array:
    """Each row's encoder: its name, its identity if the name is ambiguous, or `UNNAMED_ENCODER`.

    A name is ambiguous if it has several identities, or if its identity has several names.
    """
    ids = pc.coalesce(rows["encoder_id"], rows["encoder"], UNNAMED_ENCODER)
    names = pc.coalesce(rows["encoder"], rows["encoder_id"], UNNAMED_ENCODER)
    id_names = pa.table({"id": ids, "name": names}).group_by(["id", "name"]).aggregate([])
    by_name = id_names.group_by("name").aggregate([("id", "count_distinct")])
    by_id = id_names.group_by("id").aggregate([("name", "count_distinct")])
    shared_names = by_name.filter(pc.greater(by_name["id_count_distinct"], 1))["name"]
    ids_with_several_names = by_id.filter(pc.greater(by_id["name_count_distinct"], 1))["id"]
    ambiguous = pc.or_(pc.is_in(names, value_set=shared_names), pc.is_in(ids, value_set=ids_with_several_names))
    return pc.if_else(ambiguous, ids, names).combine_chunks()


def _numbers(column: pa.ChunkedArray) -> Doubles:
    """The column as floats, with null as NaN."""
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
