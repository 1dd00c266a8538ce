"""Human labels from a CSV file; rows that match no pair of the pool are rejects with a reason."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import FunnelStep, Output, Tables
from darklode.pipeline.base.errors import InputError
from darklode.schemas.review_tables import HUMAN_LABELS

COLUMN_NAMES = ("tenant", "query_id", "chunk_id", "relevance", "weight")
REQUIRED_NAMES = COLUMN_NAMES[1:4]
STEP_NAME = "calibrate.labels"
_LABEL_ROWS_SCHEMA = pa.schema(
    [("line", pa.int64()), *((name, pa.string()) for name in COLUMN_NAMES), ("payload", pa.string())]
)

# A pair labelled twice with the same relevance counts once; a pair with different labels does not count. If the file
# has grades (above 1), those below the judge's lowest grade of a relevant pair are not relevant, as for the judge.
CHECKED_LABELS_SQL = """
    WITH checked_rows AS (
        SELECT label_rows.*, TRY_CAST(label_rows.relevance AS INTEGER) AS grade,
            TRY_CAST(nullif(label_rows.weight, '') AS DOUBLE) AS label_weight,
            CASE WHEN label_rows.relevance IS NULL THEN 'wrong number of fields'
                 WHEN label_rows.query_id = '' OR label_rows.chunk_id = '' THEN 'missing id'
                 WHEN NOT regexp_full_match(label_rows.relevance, '[0-9]{1,9}([.]0+)?')
                      THEN 'relevance is not a whole number from 0'
                 WHEN label_rows.weight <> '' AND NOT coalesce(label_weight > 0 AND isfinite(label_weight), false)
                      THEN 'weight is not a number above 0'
                 WHEN q.query_id IS NULL THEN 'unknown query_id'
                 WHEN c.chunk_id IS NULL THEN 'unknown chunk_id'
                 WHEN p.chunk_id IS NULL THEN 'pair is not in the pool' END AS fault
        FROM label_rows LEFT JOIN queries q USING (tenant, query_id) LEFT JOIN chunks c USING (tenant, chunk_id)
        LEFT JOIN pool p USING (tenant, query_id, chunk_id)
    )
    SELECT line, tenant, query_id, chunk_id, payload,
        max(grade) OVER () > 1 AND grade > 0 AND grade < $lowest AS is_below,
        CASE WHEN is_below THEN 0 ELSE grade END AS relevance, label_weight AS weight,
        CASE WHEN fault IS NOT NULL THEN fault
             WHEN min(grade) OVER pairs <> max(grade) OVER pairs THEN 'contradictory labels'
             WHEN row_number() OVER (pairs ORDER BY line) > 1 THEN 'label repeated' END AS reason
    FROM checked_rows WINDOW pairs AS (PARTITION BY tenant, query_id, chunk_id, fault IS NULL)
    ORDER BY tenant, query_id, chunk_id, line
"""


def human_labels(tables: Tables, output: Output, file: str, tenant: str, lowest_grade: int = 1) -> pa.Table:
    """Rows of `human_labels`, sorted by key; other rows of the file are written to `rejects` and counted.

    Args:
        tables: must contain `queries`, `chunks` and `pool`.
        output: rejects and a funnel step; a fact counts grades below `lowest_grade`.
        file: CSV with a header; columns query_id, chunk_id, relevance (0, or a grade from 1) and optionally tenant and
            weight (number of pairs that the label stands for, above 0; empty: unknown).
        tenant: tenant of rows that name none.
        lowest_grade: the judge's lowest grade of a relevant pair; lower grades of a graded file become 0.

    Raises:
        InputError: the file cannot be read, a column is missing, or no pair of the pool is labelled.
    """
    labels = read_labels(Path(file).expanduser(), tenant)
    with tables.connect() as connection:
        connection.register("label_rows", labels)
        joined_labels = connection.sql(CHECKED_LABELS_SQL, params={"lowest": lowest_grade}).to_arrow_table()
    is_valid = pc.is_null(joined_labels["reason"])
    valid_labels, bad = joined_labels.filter(is_valid), joined_labels.filter(pc.invert(is_valid))
    reasons = Counter(bad["reason"].to_pylist())
    if not valid_labels.num_rows:
        summary = ", ".join(f"{reason}: {count}" for reason, count in reasons.most_common()) or "it is empty"
        raise InputError(
            f"{file} labels no pair of the pool ({summary}); take tenant, query_id and chunk_id from `pool`"
        )
    if n_below := int(pc.sum(valid_labels["is_below"]).as_py()):
        output.facts["grades_below_relevant"] = n_below
    _reject(output, Path(file).name, bad.sort_by("line"))
    output.count(
        FunnelStep(STEP_NAME, "rows", labels.num_rows, "rows", valid_labels.num_rows, dict(sorted(reasons.items())))
    )
    return HUMAN_LABELS.rows({name: valid_labels[name] for name in HUMAN_LABELS.schema.names})


def relevant(labels: pa.Table) -> NDArray[np.bool_]:
    """Whether people labelled each pair relevant, shape (n_pairs,).

    Args:
        labels: rows of `human_labels`.
    """
    return np.asarray(pc.greater(labels["relevance"], 0).to_numpy())


def sampling_weights(labels: pa.Table) -> NDArray[np.float64] | None:
    """Weight of each label in fits, shape (n_pairs,); None if no weight is known.

    A label without a weight stands for its own pair. Weights add up to Kish's effective number of labels, so that a
    prior counts more where few labels dominate.

    Args:
        labels: rows of `human_labels`.

    Source: Kish 1965, 11.7.
    """
    if labels["weight"].null_count == labels.num_rows:
        return None
    weight = pc.fill_null(labels["weight"], 1.0).to_numpy()
    return np.asarray(weight * weight.sum() / (weight**2).sum())


def _reject(output: Output, file: str, bad: pa.Table) -> None:
    if bad.num_rows:
        columns = {name: bad[name] for name in ("tenant", "line", "payload", "reason")}
        output.reject(
            STEP_NAME, HUMAN_LABELS.name, columns | {"id": bad["query_id"], "file": pa.repeat(file, len(bad))}
        )


def read_labels(path: Path, tenant: str) -> pa.Table:
    """The rows as text with line numbers from 1; a row of the wrong width has only line and payload.

    Raises:
        InputError: the file cannot be read, or a column is missing.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines)
            header = [name.strip() for name in next(reader, [])]
            column_indices = _column_indices(path, header)
            rows, line = [], reader.line_num
            for row in reader:
                if row:
                    rows.append(_row(row, line + 1, header, column_indices, tenant))
                line = reader.line_num
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}; judge.human_labels takes a CSV file in UTF-8") from error
    columns = zip(*rows, strict=True) if rows else [[]] * len(_LABEL_ROWS_SCHEMA)
    return pa.table([list(column) for column in columns], schema=_LABEL_ROWS_SCHEMA)


def _column_indices(path: Path, header: list[str]) -> dict[str, int]:
    missing = [name for name in REQUIRED_NAMES if name not in header]
    if missing:
        found = ", ".join("\t".join(header).split("\t")) or "none"
        advice = "give a CSV file, or pass qrels of BEIR or TREC as --qrels"
        raise InputError(f"{path} has no column {', '.join(missing)}; it has {found}; {advice}")
    return {name: header.index(name) for name in COLUMN_NAMES if name in header}


def _row(
    row: list[str], line: int, header: list[str], column_indices: dict[str, int], tenant: str
) -> tuple[object, ...]:
    payload = ",".join(row)
    if len(row) != len(header):
        return (line, *[None] * len(COLUMN_NAMES), payload)
    cells = {name: row[column].strip() for name, column in column_indices.items()}
    return (line, cells.get("tenant") or tenant, *(cells.get(name) for name in COLUMN_NAMES[1:]), payload)
