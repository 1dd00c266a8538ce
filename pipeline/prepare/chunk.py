"""The stage `chunk`: split documents into chunks, the unit that is retrieved and judged (DevRev-Search, 3.2)."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Part, Stage, Tables, key_of
from darklode.pipeline.base.headings import Heading, find_headings
from darklode.pipeline.base.sharding import Pieces, Spread, cuts, here
from darklode.pipeline.base.types import Row
from darklode.schemas.settings import ChunkSettings
from darklode.schemas.tables import CHUNKS

if TYPE_CHECKING:
    from langchain_text_splitters import RecursiveCharacterTextSplitter

CHUNK = Stage("chunk", 3, ("documents",), ("chunks",))
SEPARATORS = ["\n\n", "\n", ". ", " ", ""]
"""Where texts may be split, best first: paragraphs, lines, sentences, words, characters."""

SHARD_BYTES = 1 << 24
"""Approximate size of a shard: the bytes of its document parts on disk."""

_REJECTED = {"tenant": "tenant", "id": "doc_id", "payload": "text"}
_WORD = re.compile(r"[^\W_]")


@dataclass(frozen=True)
class UncutDocuments:
    """A shard of work for one worker: parts of `documents` that are not chunked yet.

    Attributes:
        tables: holds `documents`.
        parts: the parts to chunk.
        settings: size and overlap of the chunks.
        folder: where the worker stores its results.
    """

    tables: Tables
    parts: tuple[Part, ...]
    settings: ChunkSettings
    folder: str

    @property
    def name(self) -> str:
        return f"chunk {self.parts[0].file} and {len(self.parts) - 1} more"


def chunk(tables: Tables, output: Output, settings: ChunkSettings, spread: Spread = here) -> None:
    """Split each document into chunks of at most `settings.size` characters, at the best boundaries in `SEPARATORS`.

    Each part of `documents` is a unit of work: a part that is unchanged since the last run is not chunked again.
    Documents without text and chunks without a letter or digit go to `rejects`.
    """
    totals: Counter[str] = Counter()
    parts = tables.parts("documents")
    missing = {
        document_part.sha256: document_part
        for document_part in parts
        if not output.is_recorded(document_part.sha256, document_part.sha256)
    }
    pieces = chain.from_iterable(spread(cut, _shards(tables, output, settings, tuple(missing.values()))))
    for number, part in enumerate(parts):
        with output.unit(part.sha256, basis=part.sha256) as unit:
            if not unit.done:
                part_pieces = pieces if part.sha256 in missing else cut(UncutDocuments(tables, (part,), settings, ""))
                unit.facts.update(_write_part(output, part_pieces))
        totals.update(unit.facts)
        output.progress(number + 1, len(parts))
    dropped = {"no text": totals["no text"]} if totals["no text"] else {}
    output.count(FunnelStep("chunk", "documents", totals["documents"], "chunks", totals["chunks"], dropped))


def _shards(tables: Tables, output: Output, settings: ChunkSettings, parts: tuple[Part, ...]) -> list[UncutDocuments]:
    """Group parts into shards of about `SHARD_BYTES`."""
    groups = [parts[first:last] for first, last in cuts([part.size for part in parts], SHARD_BYTES)]
    keys = [key_of(*(output.unit_key(part.sha256, part.sha256) for part in group)) for group in groups]
    return [
        UncutDocuments(tables, group, settings, f"progress/{CHUNK.name}/{key}")
        for group, key in zip(groups, keys, strict=True)
    ]


def _write_part(output: Output, pieces: Iterator[pa.Table]) -> dict[str, int]:
    """Write the four tables that `cut` yields for a part; returns the counts in the last one."""
    output.write("chunks", next(pieces))
    for table in ("documents", "chunks"):
        rows = next(pieces)
        if rows.num_rows:
            output.reject(CHUNK.name, table, dict(zip(rows.column_names, rows.columns, strict=True)))
    return dict(next(pieces).to_pylist()[0])


def splitter_of(size: int, overlap: int = 0) -> RecursiveCharacterTextSplitter:
    """A text splitter for chunks of `size` characters; a separator stays at the end of the piece before it."""
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    return RecursiveCharacterTextSplitter(
        separators=SEPARATORS, chunk_size=size, chunk_overlap=overlap, keep_separator="end"
    )


def cut(shard: UncutDocuments) -> Pieces:
    """Chunk a shard. Yields four tables per part: chunks, rejected documents, rejected chunks, and a row of counts."""
    splitter = splitter_of(shard.settings.size, shard.settings.overlap)
    for part in shard.parts:
        yield from _chunk_part(shard.tables.part(part), splitter, shard.settings)


def _chunk_part(documents: pa.Table, splitter: RecursiveCharacterTextSplitter, settings: ChunkSettings) -> Pieces:
    """Chunk the documents of a part; see `cut`."""
    chunks: list[Row] = []
    textless_documents: list[Row] = []
    wordless_chunks: list[Row] = []
    for document in documents.select(["tenant", "doc_id", "title", "text"]).to_pylist():
        if not document["text"].strip():
            textless_documents.append(document)
            continue
        for row in _chunk_rows(document, spans(document["text"], splitter, settings)):
            (chunks if _WORD.search(row["text"]) else wordless_chunks).append(row)
    _add_ids(chunks)
    yield CHUNKS.rows({name: [row[name] for row in chunks] for name in CHUNKS.schema.names})
    yield _reject_table("no text", textless_documents)
    yield _reject_table("no words", wordless_chunks)
    yield pa.table({"documents": [documents.num_rows], "chunks": [len(chunks)], "no text": [len(textless_documents)]})


def spans(text: str, splitter: RecursiveCharacterTextSplitter, settings: ChunkSettings) -> Iterator[tuple[int, int]]:
    """Start and end offsets of each chunk, in characters.

    A heading at the end of a piece is moved to the following piece, which is split if that makes it longer than
    `settings.size`. Headings of more than half of that size stay separate chunks.
    """
    lines = [(heading.start, heading.end) for heading in find_headings(text)]
    pieces = _without_trailing_headings(text, _piece_offsets(text, splitter, settings.overlap), lines)
    split_pieces: list[tuple[int, int, bool]] = []  # a stack: of a piece that was split, the first part on top
    headings: list[tuple[int, int]] = []
    while piece := split_pieces.pop() if split_pieces else next(pieces, None):
        start, end, is_heading = piece
        if is_heading:
            headings.append((start, end))
            continue
        while headings and start - headings[0][0] > settings.size // 2:
            yield headings.pop(0)
        begin = min(headings[0][0], start) if headings else start
        if end - begin > settings.size:
            # At most 5/8 of the piece: otherwise its second part could be only a word or two.
            room = min(settings.size - (start - begin), (end - start) * 5 // 8)
            halves = _split_in_two(text, start, end, room)
            split_pieces += reversed(list(_without_trailing_headings(text, halves, lines)))
            continue
        headings = []
        yield begin, end
    yield from headings


def _split_in_two(text: str, start: int, end: int, room: int) -> list[tuple[int, int]]:
    """Split a piece in two, the first of at most `room` characters; white space between them is dropped."""
    first = next(iter(splitter_of(room).split_text(text[start:end])), text[start : start + room])
    second = text[start + len(first) : end].lstrip()
    return [(start, start + len(first)), (end - len(second), end)]


def _without_trailing_headings(
    text: str, pieces: Iterable[tuple[int, int]], headings: list[tuple[int, int]]
) -> Iterator[tuple[int, int, bool]]:
    """Yield start, end and whether the piece is only headings; headings at the end of a piece are split off."""
    for start, end in pieces:
        heading_start = _trailing_headings_start(text, start, end, headings)
        if body := text[start:heading_start].rstrip() if heading_start is not None else text[start:end]:
            yield start, start + len(body), False
        if heading_start is not None:
            yield heading_start, end, True


def _trailing_headings_start(text: str, start: int, end: int, headings: list[tuple[int, int]]) -> int | None:
    """Offset at which the headings at the end of a piece start; None if it does not end with a heading."""
    last = bisect_left(headings, (end, 0)) - 1
    headings_start = None
    while last >= 0 and headings[last][0] >= start and not text[headings[last][1] : end].strip():
        headings_start = end = headings[last][0]
        last -= 1
    return headings_start


def _piece_offsets(text: str, splitter: RecursiveCharacterTextSplitter, overlap: int) -> Iterator[tuple[int, int]]:
    """Start and end offsets of each piece of the splitter.

    The splitter's own offsets are wrong in repetitive texts. Without overlap, only white space lies between two
    pieces, so the first match after the previous piece is correct. With overlap, the offset found in a repetitive text
    may be too early, but never too late.
    """
    start, end = 0, 0
    for piece in splitter.split_text(text):
        start = text.index(piece, max(start, end - overlap))
        end = start + len(piece)
        yield start, end


def _chunk_rows(document: Row, places: Iterable[tuple[int, int]]) -> Iterator[Row]:
    """Yield the rows of a document's chunks, still without ids and positions; see `_add_ids`."""
    title = document["title"]
    outline = _Outline(document["text"], title)
    for start, end in places:
        text = document["text"][start:end]
        heading = outline.headings_at(start)
        digest = _sha256(f"{title or ''}\0{heading or ''}\0{text}")[:32]
        yield document | {"start": start, "end": end, "text": text, "heading": heading, "content_hash": digest}


def _add_ids(chunks: list[Row]) -> None:
    """Add each chunk's position in its document and its id: document, hash of the text, and a number if repeated."""
    next_positions: Counter[tuple[str, str]] = Counter()
    occurrences: Counter[tuple[str, str]] = Counter()
    for row in chunks:
        document = (row["tenant"], row["doc_id"])
        row["position"] = next_positions[document]
        next_positions[document] += 1
        name = f"{row['doc_id']}#{_sha256(row['text'])[:12]}"
        occurrences[row["tenant"], name] += 1
        count = occurrences[row["tenant"], name]
        row["chunk_id"] = name if count == 1 else f"{name}.{count}"


def _reject_table(reason: str, rows: list[Row]) -> pa.Table:
    """Rejected rows in the columns of `rejects`."""
    columns = {name: [row[key] for row in rows] for name, key in _REJECTED.items()}
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}).append_column(
        "reason", pa.repeat(reason, len(rows))
    )


class _Outline:
    """Markdown headings of a text, except in fenced code and except a first-level heading that repeats the title."""

    def __init__(self, text: str, title: str | None) -> None:
        self._remaining = find_headings(text)
        self._title = (title or "").strip()
        self._next_heading = next(self._remaining, None)
        self._open: list[Heading] = []

    def headings_at(self, start: int) -> str | None:
        """Headings of the section that contains offset `start`, outermost first; None without.

        Must be called with ascending offsets.
        """
        while self._next_heading and self._next_heading.start <= start:
            level = self._next_heading.level
            self._open = [heading for heading in self._open if heading.level < level]
            self._open.append(self._next_heading)
            self._next_heading = next(self._remaining, None)
        return (
            " › ".join(
                heading.text
                for heading in self._open
                if heading.start < start and (heading.level, heading.text) != (1, self._title)
            )
            or None
        )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
