"""Ingest relevance judgments that people, or other tools, made before: the stage `ingest_judgments`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.errors import InputError, TooManyRejects
from darklode.pipeline.ingest.files import TABULAR_FORMATS, InputFile, list_files, missing_files_message
from darklode.pipeline.ingest.readers.judgment_files import read_judgments
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import RowBlock, blank_to_null, concat_blocks, drop_faulty, is_blank, mask
from darklode.schemas.label_tables import JUDGMENTS
from darklode.schemas.settings import IngestSettings

INGEST_JUDGMENTS = Stage("ingest_judgments", 1, ("raw_queries", "documents", "chunks"), ("judgments",))

QRELS_ENDINGS = frozenset({".txt", ".qrels", ".qrel", ".trec", ".json"})
"""Endings of files with judgments besides those of tables."""

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "dev": "validation",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
}
"""Split by a word of a file's name, or by the column `split`."""

CONTRADICTION = "contradictory judgments"

ROLES = ("query_id", "query", "document", "relevance", "split")

FOLDED_SQL = "regexp_replace(trim(lower({text})), '\\s+', ' ', 'g')"
"""Text of a query, ignoring case and white space."""

# A query is named by its id or by its text; of several queries with the same text, the first id counts. Judgments of a
# chunk count as such, others as those of a document. A query in several files belongs to the most held-out split.
RESOLVED_SQL = f"""
    WITH query_texts AS (
        SELECT tenant, {FOLDED_SQL.format(text="text")} AS text, min(query_id) AS query_id FROM raw_queries GROUP BY ALL
    ), named AS (
        SELECT n, r.tenant, coalesce(i.query_id, x.query_id, t.query_id) AS query_id, document, grade, split,
               source_split
        FROM judgment_rows r
        LEFT JOIN raw_queries i ON i.tenant = r.tenant AND i.query_id = r.query_id
        LEFT JOIN raw_queries x ON x.tenant = r.tenant AND x.query_id = r.query
        LEFT JOIN query_texts t ON t.tenant = r.tenant AND t.text = {FOLDED_SQL.format(text="r.query")}
    ), found AS (
        SELECT n.*, CASE WHEN d.doc_id IS NOT NULL THEN 'document'
                         WHEN c.chunk_id IS NOT NULL THEN 'chunk' END AS level
        FROM named n
        LEFT JOIN documents d ON d.tenant = n.tenant AND d.doc_id = n.document
        LEFT JOIN (SELECT tenant, chunk_id FROM chunks) c ON c.tenant = n.tenant AND c.chunk_id = n.document
            AND d.doc_id IS NULL
    ), checked AS (
        SELECT *, CASE WHEN query_id IS NULL THEN 'unknown query'
                       WHEN level IS NULL THEN 'unknown document'
                       WHEN source_split IS NOT NULL AND split IS NULL THEN 'unknown split' END AS fault
        FROM found
    )
    SELECT n, tenant, query_id, document AS item_id, level, grade,
           CASE WHEN bool_or(split = 'test') OVER queries THEN 'test'
                WHEN bool_or(split = 'validation') OVER queries THEN 'validation'
                WHEN bool_or(split = 'train') OVER queries THEN 'train' END AS split,
           CASE WHEN fault IS NOT NULL THEN fault
                WHEN min(grade) OVER pairs <> max(grade) OVER pairs THEN '{CONTRADICTION}'
                WHEN row_number() OVER (pairs ORDER BY n) > 1 THEN 'judgment repeated' END AS reason
    FROM checked
    WINDOW pairs AS (PARTITION BY tenant, query_id, document, fault IS NULL),
           queries AS (PARTITION BY tenant, query_id)
    ORDER BY n
"""


def ingest_judgments(tables: Tables, output: Output, settings: IngestSettings, *, path: str) -> None:
    """Read judgments into the table `judgments`; unusable rows are rejects with file, line and reason.

    Formats: TREC qrels, BEIR (a folder with `qrels/`, or its files), Quepid's CSV, judgment lists of OpenSearch's
    Search Relevance Workbench, ranking evaluations of Elasticsearch, and tables with a header. A query is named by its
    id or its text, a document by its id or by that of a chunk. Negative grades of TREC count as 0. The split of a query
    comes from a column `split` or the file's name (`train.tsv`, `dev.tsv`, `test.tsv`), if either says.

    Args:
        tables: must contain `raw_queries`, `documents` and `chunks`.
        output: receives `judgments`, sorted by key, and the rejects.
        settings: default tenant, maximum row length and maximum share of rejects.
        path: a file, or a folder of files.

    Raises:
        InputError: there is nothing to read, or a file is unreadable or lacks a column.
        TooManyRejects: more than `settings.max_reject_share` of the rows are unusable.
    """
    files = judgment_files(path)
    intake = Intake(output, "judgments", path, files)
    blocks = [
        _complete(_with_split(block, file), intake, settings)
        for file in files
        for block in read_judgments(file, intake, settings.max_row_bytes)
    ]
    rows = _resolve(tables, concat_blocks(blocks), intake) if blocks else JUDGMENTS.empty()
    _check_contradictions(path, files, intake, settings.max_reject_share)
    intake.close(settings.max_reject_share)
    output.write("judgments", rows)


def _check_contradictions(path: str, files: Sequence[InputFile], intake: Intake, share: float) -> None:
    """Raise if several files, such as two gradings of the same pairs, contradict each other."""
    counts = intake.counts
    n_contradictory = counts.reasons[CONTRADICTION]
    if len(files) > 1 and n_contradictory > share * counts.rows:
        names = ", ".join(file.name for file in files[:5])
        raise TooManyRejects(
            f"{n_contradictory:,} of {counts.rows:,} judgments in {path} contradict another one of the same pair, such "
            f"as {counts.examples[CONTRADICTION]}; give one of the files ({names}) instead of all"
        )


def judgment_files(path: str) -> list[InputFile]:
    """The files with judgments: the file itself, those below `qrels/` of a BEIR folder, or all in a folder.

    Raises:
        InputError: the path does not exist, or holds no such file.
    """
    files = list_files(path)
    in_qrels = [file for file in files if PurePosixPath(file.name).parts[0] == "qrels" and "/" in file.name]
    chosen = [file for file in in_qrels or files if not file.skipped and _is_judgment_file(file)]
    if len(files) == 1 and not files[0].skipped:
        chosen = files
    if not chosen:
        readable = "TREC qrels (.txt, .qrels), a .csv, .tsv, .jsonl or .parquet file with a header, or a JSON list"
        raise InputError(missing_files_message(path, "judgments", files, readable))
    return chosen


def _is_judgment_file(file: InputFile) -> bool:
    return file.format in TABULAR_FORMATS or file.ending in QRELS_ENDINGS


def _with_split(block: RowBlock, file: InputFile) -> RowBlock:
    """Add a column `split` from the file's name, unless the file has one."""
    if "split" in block.columns:
        return block
    words = re.split(r"[^a-z]+", PurePosixPath(file.name).name.lower())
    split = next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), None)
    return RowBlock(
        block.files, block.columns | {"split": pa.repeat(pa.scalar(split, pa.string()), len(block))}, block.lines
    )


def _complete(block: RowBlock, intake: Intake, settings: IngestSettings) -> RowBlock:
    """All roles as columns, trimmed, with a tenant; rows that lack something are rejected."""
    columns = {role: blank_to_null(block.columns.get(role, block.nulls())) for role in ROLES}
    columns["tenant"] = block.columns.get("tenant", block.nulls())
    columns["grade"] = _parse_grades(columns["relevance"])
    block = RowBlock(block.files, columns, block.lines)
    faults = [
        ("no query", is_blank(columns["query_id"]) & is_blank(columns["query"])),
        ("no document", is_blank(columns["document"])),
        ("relevance is not a whole number", ~mask(columns["grade"].is_valid())),
    ]
    if settings.require_tenant:
        faults.append(("missing tenant", is_blank(columns["tenant"])))
    return drop_faulty(block, faults, intake).complete(settings)


def _parse_grades(texts: pa.Array) -> pa.Array:
    """Grades as text: whole numbers, at least 0; null for anything else."""
    without_decimals = pc.replace_substring_regex(texts, r"\.0*$", "")
    is_grade = pc.fill_null(pc.match_substring_regex(without_decimals, r"^[+-]?[0-9]{1,9}$"), False)
    number = pc.cast(pc.if_else(is_grade, pc.utf8_ltrim(without_decimals, "+"), None), pa.int64())
    return pc.cast(pc.max_element_wise(number, pc.if_else(is_grade, 0, None), skip_nulls=False), pa.string())


def _resolve(tables: Tables, block: RowBlock, intake: Intake) -> pa.Table:
    """Rows of `judgments` whose query and document are in the run; others are rejected."""
    numbered = pa.table(block.columns).drop_columns(["relevance"]).append_column("n", pa.array(np.arange(len(block))))
    names = pa.array(SPLIT_NAMES.keys(), pa.string()), pa.array(SPLIT_NAMES.values(), pa.string())
    positions = pc.index_in(pc.utf8_lower(block.columns["split"]), value_set=names[0])
    numbered = numbered.append_column("source_split", block.columns["split"])
    numbered = numbered.set_column(numbered.schema.get_field_index("split"), "split", names[1].take(positions))
    with tables.connect() as connection:
        connection.register("judgment_rows", numbered)
        resolved = connection.sql(RESOLVED_SQL).to_arrow_table().combine_chunks()
    reasons = resolved["reason"]
    faults = [
        (reason, mask(pc.equal(reasons, reason))) for reason in sorted(filter(None, pc.unique(reasons).to_pylist()))
    ]
    drop_faulty(block, faults, intake)
    usable = resolved.filter(pc.is_null(reasons))
    columns = {name: usable[name] for name in ("tenant", "query_id", "item_id", "level", "split")}
    rows = JUDGMENTS.rows(columns | {"relevance": usable["grade"].cast(pa.int32())})
    return rows.sort_by([(name, "ascending") for name in JUDGMENTS.key])
