"""Relevance judgments in the formats of search tools: TREC qrels, tables with a header, and JSON lists.

JSON lists are those of OpenSearch's Search Relevance Workbench and the requests of Elasticsearch's ranking evaluation.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.columns import judgment_columns
from darklode.pipeline.ingest.files import TABULAR_FORMATS, InputFile
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.readers.text import head_of, lines_of, pieces, records_of, valid_records
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import RowBlock, drop_faulty, from_file, mask

TREC_LINE = re.compile(rb"\s*\S+\s+\S+\s+\S+\s+-?\d+\s*")
TREC_PATTERN = r"^\s*(?P<query_id>\S+)\s+\S+\s+(?P<document>\S+)\s+(?P<relevance>-?\d+)\s*$"
TREC_FAULT = "not four fields: query id, iteration, document id, relevance"

Judgment = tuple[str | None, str | None, str | None, str | None]
"""Query id, query text, document id and relevance, as written."""


def read_judgments(file: InputFile, intake: Intake, limit: int) -> Iterator[RowBlock]:
    """Read a file of judgments; rows longer than `limit` bytes are rejected.

    Returns:
        Blocks with the columns document and relevance, and query_id, query, split and tenant where the file has them.

    Raises:
        InputError: the file is unreadable, of an unknown format, or lacks a column.
    """
    head = head_of(file) if file.format not in {"parquet", "xlsx"} else b""
    if TREC_LINE.fullmatch(head.partition(b"\n")[0]):
        yield from _read_trec(file, intake, limit)
    elif (content := _judgment_lists(file, head)) is not None:
        yield from _read_lists(file, content, intake)
    elif file.format in TABULAR_FORMATS:
        for block in read_tabular(file, None, judgment_columns(), intake, limit):
            if not {"query_id", "query"} & block.columns.keys():
                raise InputError(f"{file.path} has no column for the query: name one query_id, or query for its text")
            yield block
    else:
        raise InputError(
            f"{file.path} holds no judgments: expected TREC qrels (query, iteration, document, relevance in a line), "
            "a table with a header (.csv, .tsv, .jsonl, .parquet), or a list of judgments in JSON"
        )


def _read_trec(file: InputFile, intake: Intake, limit: int) -> Iterator[RowBlock]:
    for all_records in records_of(file, intake.set_position, limit):
        records = valid_records(all_records, file, intake)
        if not len(records):
            continue
        texts = pa.array([records.raw(row).decode().strip() for row in range(len(records))], pa.string())
        fields = pc.extract_regex(texts, TREC_PATTERN)
        columns = {name: pc.struct_field(fields, name) for name in ("query_id", "document", "relevance")}
        block = from_file(file.name, columns, lines_of(records))
        is_blank = mask(pc.equal(texts, ""))
        intake.count_rows(-int(is_blank.sum()))
        yield drop_faulty(block.filter(~is_blank), [(TREC_FAULT, ~mask(fields.is_valid())[~is_blank])], intake)
    intake.close_file(file)


def _judgment_lists(file: InputFile, head: bytes) -> Any:
    """The content of a JSON file with a judgment list or a ranking evaluation; None for any other file.

    Raises:
        InputError: it begins like one, but is no valid JSON.
    """
    if not head.lstrip().startswith((b"{", b"[")):
        return None
    if b'"judgmentRatings"' not in head and b'"ratings"' not in head:
        return None
    try:
        return json.loads(b"".join(pieces(file, lambda _position: None)))
    except json.JSONDecodeError as error:
        if file.ending in {".jsonl", ".ndjson"}:
            return None
        raise InputError(f"{file.path} is not valid JSON ({error})") from error


def _read_lists(file: InputFile, content: Any, intake: Intake) -> Iterator[RowBlock]:
    """One block of all judgments of a JSON file; a row's line is its number in the file, from 1."""
    judgments = list(_judgments_in(content))
    intake.count_rows(len(judgments))
    columns = zip(*judgments, strict=True) if judgments else [[], [], [], []]
    names = ("query_id", "query", "document", "relevance")
    arrays = {name: pa.array(list(values), pa.string()) for name, values in zip(names, columns, strict=True)}
    yield from_file(file.name, arrays, pa.array(range(1, len(judgments) + 1), pa.int64()))
    intake.close_file(file)


def _judgments_in(content: Any) -> Iterator[Judgment]:
    """The judgments of an object, a list of objects, or a search response with them."""
    if isinstance(content, list):
        for item in content:
            yield from _judgments_in(item)
    elif isinstance(content, Mapping):
        if isinstance(content.get("judgmentRatings"), list):
            yield from _workbench_ratings(content["judgmentRatings"])
        elif isinstance(content.get("requests"), list):
            yield from _ranking_evaluation(content["requests"])
        else:
            hits = content.get("hits")
            yield from _judgments_in(hits if isinstance(hits, list | Mapping) else content.get("_source", []))


def _workbench_ratings(entries: list[Any]) -> Iterator[Judgment]:
    """Judgments of a list of the Search Relevance Workbench: `{"query": …, "ratings": [{"docId": …, "rating": …}]}`."""
    for entry in entries:
        if isinstance(entry, Mapping):
            for rating in _ratings(entry):
                yield None, _text(entry.get("query")), _text(rating.get("docId")), _text(rating.get("rating"))


def _ranking_evaluation(requests: list[Any]) -> Iterator[Judgment]:
    """Judgments of ranking evaluation: `{"id": …, "ratings": [{"_id": …, "rating": …}]}`; the id may be the query."""
    for request in requests:
        if isinstance(request, Mapping):
            query = _text(request.get("id"))
            for rating in _ratings(request):
                yield query, query, _text(rating.get("_id")), _text(rating.get("rating"))


def _ratings(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    ratings = entry.get("ratings")
    return (rating for rating in (ratings if isinstance(ratings, list) else []) if isinstance(rating, Mapping))


def _text(value: Any) -> str | None:
    """A JSON value as text; None for null, lists and objects."""
    return None if value is None or isinstance(value, list | Mapping) else str(value)
