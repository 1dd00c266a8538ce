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

INGEST_QUERIES = Stage("ingest_queries", 3, (), ("raw_queries",))
ID_DIGITS = 16  # hexadecimal digits (64 bits) of a generated query id


def ingest_queries(path: str, output: Output, settings: IngestSettings) -> None:
    """Read query files into the table `raw_queries`; rows that cannot be used go to `rejects` with a reason.

    Files are read block by block, so memory depends on the longest row, plus 8 bytes per query to find repeated ids.

    Args:
        path: a file or folder of queries, as given by the user.
        output: receives the table, the rejected rows and the row counts.
        settings: the settings `ingest`; `ingest.queries` has the format and the column names.

    Raises:
        InputError: there is nothing to read, a file cannot be read, or a column is missing.
        TooManyRejects: more than `settings.max_reject_share` of the rows are unreadable.
    """
    choice = choose_queries(path, settings.queries.format)
    columns = query_columns(settings.queries.columns)
    intake = Intake(output, "queries", path, choice.files)
    parts = PartBuffer(output, "raw_queries")
    seen_keys = SeenKeys()
    for file in choice.other_files:
        intake.reject_file(file)
    for file in choice.files:
        for block in read_tabular(file, choice.format, columns, intake, settings.max_row_bytes):
            rows = select_usable(block, intake, seen_keys, settings)
            no_part_ends = np.zeros(rows.num_rows, dtype=bool)  # parts of queries end by size alone
            parts.add(rows, no_part_ends)
    parts.close()
    intake.close(settings.max_reject_share)


def select_usable(block: RowBlock, intake: Intake, seen_keys: SeenKeys, settings: IngestSettings) -> pa.Table:
    """Parse a block of input rows and return the usable ones as rows of `raw_queries`.

    A row is rejected with the first fault that applies: a fault of its text, tenant or id (`common_faults`), an
    invalid timestamp or count, or an id that the tenant already has.

    Args:
        block: rows with columns named by role (query_id, text, …).
        intake: receives the rejected rows.
        seen_keys: ids of earlier blocks of the same ingest; the ids of this block are added.
        settings: the settings `ingest`.
    """
    readable = drop_faulty(block, common_faults(block, "query_id", settings), intake)
    times, time_faults = read_times(readable.columns.get("timestamp", readable.nulls()))
    counts, bad_counts = _parse_counts(readable.columns.get("count", readable.nulls()))
    faults = [*time_faults, ("count is not a positive whole number", bad_counts)]
    is_faulty = np.logical_or.reduce([fault_mask for _, fault_mask in faults])
    valid_rows = _with_ids(drop_faulty(readable, faults, intake)).complete(settings)
    tenants = valid_rows.columns["tenant"].to_pylist()
    query_ids = valid_rows.columns["query_id"].to_pylist()
    is_repeated = seen_keys.find_repeated(keys_of(tenants, query_ids))
    usable_rows = drop_faulty(valid_rows, [("duplicate id", is_repeated)], intake)
    # `times` and `counts` have a value per readable row: take those of the rows that passed both checks.
    usable_positions = np.flatnonzero(~is_faulty)[~is_repeated]
    return RAW_QUERIES.rows(
        {
            "tenant": usable_rows.columns["tenant"],
            "query_id": usable_rows.columns["query_id"],
            "text": usable_rows.columns["text"],
            "timestamp": times.take(usable_positions),
            "count": counts.take(usable_positions),
        }
    )


def _parse_counts(texts: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Parse how often each query occurred.

    Returns:
        Counts as int64, 1 where the text is empty, null or invalid; and a mask of the invalid texts: those that are
        not positive whole numbers. A decimal part of zeros is accepted (`3.0`, as pandas writes counts with gaps).
    """
    texts_trimmed = pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"\.0+$", "")
    is_empty = mask(pc.equal(texts_trimmed, "")) | ~mask(texts_trimmed.is_valid())
    # At most 18 digits: larger numbers might not fit into int64.
    is_count = mask(pc.match_substring_regex(texts_trimmed, r"^\+?0*[1-9][0-9]{0,17}$"))
    numbers = pc.if_else(pa.array(is_count), pc.utf8_ltrim(texts_trimmed, "+"), "1").cast(pa.int64())
    return numbers, ~is_count & ~is_empty


def _with_ids(block: RowBlock) -> RowBlock:
    """Add a column `query_id` with a hash of file name and line, unless the block has one.

    The ids stay the same as long as no line before a query is added or removed and the file keeps its name.
    """
    if "query_id" in block.columns:
        return block
    locations = zip(block.files.to_pylist(), block.lines.to_pylist(), strict=True)
    query_ids = ["q-" + hashlib.sha256(f"{file}\0{line}".encode()).hexdigest()[:ID_DIGITS] for file, line in locations]
    return RowBlock(block.files, block.columns | {"query_id": pa.array(query_ids, pa.string())}, block.lines)
