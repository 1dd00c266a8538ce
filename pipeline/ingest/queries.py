"""Stage 1: raw queries from text, JSON lines, CSV, Parquet or BEIR, as one table."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Output, Stage
from darklode.pipeline.ingest.columns import query_columns
from darklode.pipeline.ingest.files import choose_queries
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import Block, Parts, Seen, common_faults, keys_of, mask, weed
from darklode.pipeline.ingest.times import read_times
from darklode.schemas.settings import IngestSettings
from darklode.schemas.tables import RAW_QUERIES

INGEST_QUERIES = Stage("ingest_queries", 2, (), ("raw_queries",))
ID_DIGITS = 16


def ingest_queries(path: str, output: Output, settings: IngestSettings) -> None:
    """Read a query log into `raw_queries`; what cannot be read goes to `rejects` with its reason.

    Memory follows the longest row, not the log; besides, 8 bytes are held for each query.

    Raises:
        InputError: there is nothing to read, a file cannot be read at all, or a column is not there.
        TooManyRejects: more than `settings.max_reject_share` of the rows cannot be read.
    """
    choice = choose_queries(path, settings.queries.format)
    columns = query_columns(settings.queries.columns)
    intake = Intake(output, "queries", path, choice.files)
    parts, seen = Parts(output, "raw_queries"), Seen()
    for file in choice.others:
        intake.foreign(file)
    for file in choice.files:
        for block in read_tabular(file, choice.format, columns, intake, settings.max_row_bytes):
            rows = usable(block, intake, seen, settings)
            parts.add(rows, np.zeros(rows.num_rows, dtype=bool))
    parts.close()
    intake.close(settings.max_reject_share)


def usable(block: Block, intake: Intake, seen: Seen, settings: IngestSettings) -> pa.Table:
    """The rows of `raw_queries` that a block makes; the others are turned away."""
    sound = weed(block, common_faults(block, "query_id", settings), intake)
    times, untimely = read_times(sound.columns.get("timestamp", sound.nulls()))
    counts, uncounted = _counts(sound.columns.get("count", sound.nulls()))
    faults = [*untimely, ("count is not a positive whole number", uncounted)]
    bad = np.logical_or.reduce([hit for _, hit in faults])
    whole = _named(weed(sound, faults, intake)).completed(settings)
    tenants, names = whole.columns["tenant"], whole.columns["query_id"]
    repeated = seen.repeated(keys_of(tenants.to_pylist(), names.to_pylist()))
    left = weed(whole, [("duplicate id", repeated)], intake)
    kept = np.flatnonzero(~bad)[~repeated]
    return RAW_QUERIES.rows(
        {
            "tenant": left.columns["tenant"],
            "query_id": left.columns["query_id"],
            "text": left.columns["text"],
            "timestamp": times.take(kept),
            "count": counts.take(kept),
        }
    )


def _counts(texts: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Counts as numbers, 1 where there is none; and where a count is no positive whole number."""
    given = pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"\.0+$", "")
    absent = mask(pc.equal(given, "")) | ~mask(given.is_valid())
    good = mask(pc.match_substring_regex(given, r"^\+?0*[1-9][0-9]{0,17}$"))
    numbers = pc.if_else(pa.array(good), pc.utf8_ltrim(given, "+"), "1").cast(pa.int64())
    return numbers, ~good & ~absent


def _named(block: Block) -> Block:
    """Rows of a source without ids are named by a hash of their file and line: the same file, the same names."""
    if "query_id" in block.columns:
        return block
    places = zip(block.files.to_pylist(), block.lines.to_pylist(), strict=True)
    names = ["q-" + hashlib.sha256(f"{file}\0{line}".encode()).hexdigest()[:ID_DIGITS] for file, line in places]
    return Block(block.files, block.columns | {"query_id": pa.array(names, pa.string())}, block.lines)
