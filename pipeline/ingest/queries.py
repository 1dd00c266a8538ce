"""Ingest raw queries from text, JSON lines, CSV, Parquet or BEIR."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Output, Stage
from darklode.pipeline.ingest.columns import query_columns
from darklode.pipeline.ingest.files import choose_queries
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import PartBuffer, RowBlock, SeenKeys, common_faults, drop_faulty, keys_of, mask
from darklode.pipeline.ingest.timestamps import read_times
from darklode.schemas.settings import IngestSettings
from darklode.schemas.tables import RAW_QUERIES

INGEST_QUERIES = Stage("ingest_queries", 2, (), ("raw_queries",))
ID_DIGITS = 16


def ingest_queries(path: str, output: Output, settings: IngestSettings) -> None:
    """Read a query log into `raw_queries`; unreadable rows go to `rejects` with a reason.

    Memory depends on the longest row, plus 8 bytes per query.

    Raises:
        InputError: there is nothing to read, a file cannot be read, or a column is missing.
        TooManyRejects: more than `settings.max_reject_share` of the rows are unreadable.
    """
    choice = choose_queries(path, settings.queries.format)
    columns = query_columns(settings.queries.columns)
    intake = Intake(output, "queries", path, choice.files)
    parts, seen_keys = PartBuffer(output, "raw_queries"), SeenKeys()
    for file in choice.other_files:
        intake.reject_file(file)
    for file in choice.files:
        for block in read_tabular(file, choice.format, columns, intake, settings.max_row_bytes):
            rows = select_usable(block, intake, seen_keys, settings)
            parts.add(rows, np.zeros(rows.num_rows, dtype=bool))
    parts.close()
    intake.close(settings.max_reject_share)


def select_usable(block: RowBlock, intake: Intake, seen_keys: SeenKeys, settings: IngestSettings) -> pa.Table:
    """Rows of `raw_queries` from a block; unusable rows are rejected."""
    readable = drop_faulty(block, common_faults(block, "query_id", settings), intake)
    times, time_faults = read_times(readable.columns.get("timestamp", readable.nulls()))
    counts, bad_counts = _counts(readable.columns.get("count", readable.nulls()))
    faults = [*time_faults, ("count is not a positive whole number", bad_counts)]
    bad = np.logical_or.reduce([hit for _, hit in faults])
    complete = _with_ids(drop_faulty(readable, faults, intake)).complete(settings)
    tenants, names = complete.columns["tenant"], complete.columns["query_id"]
    repeated = seen_keys.find_repeated(keys_of(tenants.to_pylist(), names.to_pylist()))
    remaining = drop_faulty(complete, [("duplicate id", repeated)], intake)
    first_rows = np.flatnonzero(~bad)[~repeated]
    return RAW_QUERIES.rows(
        {
            "tenant": remaining.columns["tenant"],
            "query_id": remaining.columns["query_id"],
            "text": remaining.columns["text"],
            "timestamp": times.take(first_rows),
            "count": counts.take(first_rows),
        }
    )


def _counts(texts: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Parse counts; returns values (1 if empty) and a mask of texts that are not positive whole numbers."""
    texts_trimmed = pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"\.0+$", "")
    absent = mask(pc.equal(texts_trimmed, "")) | ~mask(texts_trimmed.is_valid())
    good = mask(pc.match_substring_regex(texts_trimmed, r"^\+?0*[1-9][0-9]{0,17}$"))
    numbers = pc.if_else(pa.array(good), pc.utf8_ltrim(texts_trimmed, "+"), "1").cast(pa.int64())
    return numbers, ~good & ~absent


def _with_ids(block: RowBlock) -> RowBlock:
    """Add ids made of a hash of file and line, if there are none: stable as long as the file is."""
    if "query_id" in block.columns:
        return block
    places = zip(block.files.to_pylist(), block.lines.to_pylist(), strict=True)
    names = ["q-" + hashlib.sha256(f"{file}\0{line}".encode()).hexdigest()[:ID_DIGITS] for file, line in places]
    return RowBlock(block.files, block.columns | {"query_id": pa.array(names, pa.string())}, block.lines)
