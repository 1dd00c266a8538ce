"""Documents cut into chunks, the unit that is retrieved and judged (DevRev-Search, 3.2)."""

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
from darklode.pipeline.base.sharding import Pieces, Spread, cuts, here
from darklode.pipeline.base.types import Row
from darklode.schemas.settings import ChunkSettings
from darklode.schemas.tables import CHUNKS

if TYPE_CHECKING:
    from langchain_text_splitters import RecursiveCharacterTextSplitter

CHUNK = Stage("chunk", 3, ("documents",), ("chunks",))
SEPARATORS = ["\n\n", "\n", ". ", " ", ""]
SHARD_BYTES = 1 << 24
"""Of the parts of the documents in a shard, about, as they lie on disk."""
_REJECTED = {"tenant": "tenant", "id": "doc_id", "payload": "text"}
_WORD = re.compile(r"[^\W_]")
_LINE = re.compile(
    r"^ {0,3}(?:(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})(?P<info>.*)|(?P<level>#{1,6})[ \t]+(?P<text>.*))$", re.M
)


@dataclass(frozen=True)
class UncutDocuments:
    """A shard: some parts of the documents."""

    tables: Tables
    parts: tuple[Part, ...]
    settings: ChunkSettings
    folder: str

    @property
    def name(self) -> str:
        return f"chunk {self.parts[0].file} and {len(self.parts) - 1} more"


def chunk(tables: Tables, output: Output, settings: ChunkSettings, spread: Spread = here) -> None:
    """Cut every document into pieces of at most `settings.size` characters, at natural boundaries first.

    Each part of `documents` is a unit of its own: one that is the same as in the last run is not cut again. Documents
    without a text and pieces without a letter or digit go to `rejects`.
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
                unit.facts.update(_write(output, part_pieces))
        totals.update(unit.facts)
        output.progress(number + 1, len(parts))
    dropped = {"no text": totals["no text"]} if totals["no text"] else {}
    output.count(FunnelStep("chunk", "documents", totals["documents"], "chunks", totals["chunks"], dropped))


def _shards(tables: Tables, output: Output, settings: ChunkSettings, parts: tuple[Part, ...]) -> list[UncutDocuments]:
    groups = [parts[first:last] for first, last in cuts([part.size for part in parts], SHARD_BYTES)]
    keys = [key_of(*(output.unit_key(part.sha256, part.sha256) for part in group)) for group in groups]
    return [
        UncutDocuments(tables, group, settings, f"progress/{CHUNK.name}/{key}")
        for group, key in zip(groups, keys, strict=True)
    ]


def _write(output: Output, pieces: Iterator[pa.Table]) -> dict[str, int]:
    """Write what `cut` gives of one part; returns its counts."""
    output.write("chunks", next(pieces))
    for table in ("documents", "chunks"):
        rows = next(pieces)
        if rows.num_rows:
            output.reject(CHUNK.name, table, dict(zip(rows.column_names, rows.columns, strict=True)))
    return dict(next(pieces).to_pylist()[0])


def splitter_of(size: int, overlap: int = 0) -> RecursiveCharacterTextSplitter:
    """What cuts the texts: at paragraphs, then lines, sentences, words, characters."""
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    return RecursiveCharacterTextSplitter(
        separators=SEPARATORS, chunk_size=size, chunk_overlap=overlap, keep_separator="end"
    )


def cut(shard: UncutDocuments) -> Pieces:
    """Cut a shard: of each part its chunks, rejected documents, rejected pieces, and a row of counts."""
    splitter = splitter_of(shard.settings.size, shard.settings.overlap)
    for part in shard.parts:
        yield from _part(shard.tables.part(part), splitter, shard.settings)


def _part(documents: pa.Table, splitter: RecursiveCharacterTextSplitter, settings: ChunkSettings) -> Pieces:
    chunks: list[Row] = []
    empty: list[Row] = []
    wordless: list[Row] = []
    for document in documents.select(["tenant", "doc_id", "title", "text"]).to_pylist():
        if not document["text"].strip():
            empty.append(document)
            continue
        for row in _chunks(document, spans(document["text"], splitter, settings)):
            (chunks if _WORD.search(row["text"]) else wordless).append(row)
    _number(chunks)
    yield CHUNKS.rows({name: [row[name] for row in chunks] for name in CHUNKS.schema.names})
    yield _reject_table("no text", empty)
    yield _reject_table("no words", wordless)
    yield pa.table({"documents": [documents.num_rows], "chunks": [len(chunks)], "no text": [len(empty)]})


def spans(text: str, splitter: RecursiveCharacterTextSplitter, settings: ChunkSettings) -> Iterator[tuple[int, int]]:
    """Where each chunk lies in the text, in characters: first, and one past the last.

    A heading at the end of a piece belongs to the piece that follows, which is cut if it becomes longer than
    `settings.size`. A heading that takes more than half of that stays a chunk of its own.
    """
    lines = [(match.start("level"), match.end()) for match in _heading_lines(text)]
    pieces = _without_trailing_headings(text, _pieces(text, splitter, settings.overlap), lines)
    parts: list[tuple[int, int, bool]] = []  # of a piece that was cut, the last one first
    headings: list[tuple[int, int]] = []
    while piece := parts.pop() if parts else next(pieces, None):
        start, end, is_heading = piece
        if is_heading:
            headings.append((start, end))
            continue
        while headings and start - headings[0][0] > settings.size // 2:
            yield headings.pop(0)
        begin = min(headings[0][0], start) if headings else start
        if end - begin > settings.size:
            room = min(settings.size - (start - begin), (end - start) * 5 // 8)  # more would leave but a word or two
            halves = _halves(text, start, end, room)
            parts += reversed(list(_without_trailing_headings(text, halves, lines)))
            continue
        headings = []
        yield begin, end
    yield from headings


def _halves(text: str, start: int, end: int, room: int) -> list[tuple[int, int]]:
    """A piece cut in two, the first of at most `room` characters; white space between them is left out."""
    first = next(iter(splitter_of(room).split_text(text[start:end])), text[start : start + room])
    second = text[start + len(first) : end].lstrip()
    return [(start, start + len(first)), (end - len(second), end)]


def _without_trailing_headings(
    text: str, pieces: Iterable[tuple[int, int]], headings: list[tuple[int, int]]
) -> Iterator[tuple[int, int, bool]]:
    """The pieces, the headings that one ends with as a piece of their own, and whether a piece is only headings."""
    for start, end in pieces:
        heading = _trailing(text, start, end, headings)
        if body := text[start:heading].rstrip() if heading is not None else text[start:end]:
            yield start, start + len(body), False
        if heading is not None:
            yield heading, end, True


def _trailing(text: str, start: int, end: int, headings: list[tuple[int, int]]) -> int | None:
    """Where the headings begin that a piece ends with; None where it ends with something else."""
    last = bisect_left(headings, (end, 0)) - 1
    match = None
    while last >= 0 and headings[last][0] >= start and not text[headings[last][1] : end].strip():
        match = end = headings[last][0]
        last -= 1
    return match


def _pieces(text: str, splitter: RecursiveCharacterTextSplitter, overlap: int) -> Iterator[tuple[int, int]]:
    """Where each piece of the splitter lies in the text.

    The splitter's own offsets are wrong where a text repeats itself. Only white space lies between two pieces that do
    not overlap, so the first match past the last piece is the true one. Pieces that overlap in a text that repeats
    itself may be found before their true place, never past it.
    """
    start, end = 0, 0
    for piece in splitter.split_text(text):
        start = text.index(piece, max(start, end - overlap))
        end = start + len(piece)
        yield start, end


def _chunks(document: Row, places: Iterable[tuple[int, int]]) -> Iterator[Row]:
    """A document's chunks, their ids and places among the others still to come."""
    title = document["title"]
    outline = _Outline(document["text"], title)
    for start, end in places:
        text, heading = document["text"][start:end], outline.headings_at(start)
        digest = _sha256(f"{title or ''}\0{heading or ''}\0{text}")[:32]
        yield document | {"start": start, "end": end, "text": text, "heading": heading, "content_hash": digest}


def _number(chunks: list[Row]) -> None:
    """Give each chunk its place in its document, and an id that tells equal texts of a document apart."""
    places: Counter[tuple[str, str]] = Counter()
    times: Counter[tuple[str, str]] = Counter()
    for row in chunks:
        document = (row["tenant"], row["doc_id"])
        row["position"] = places[document]
        places[document] += 1
        name = f"{row['doc_id']}#{_sha256(row['text'])[:12]}"
        times[row["tenant"], name] += 1
        count = times[row["tenant"], name]
        row["chunk_id"] = name if count == 1 else f"{name}.{count}"


def _reject_table(reason: str, rows: list[Row]) -> pa.Table:
    """Columns of `rejects`."""
    columns = {name: [row[key] for row in rows] for name, key in _REJECTED.items()}
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}).append_column(
        "reason", pa.repeat(reason, len(rows))
    )


class _Outline:
    """The Markdown headings of a text, outside of fenced code; a first-level one that repeats the title is left out."""

    def __init__(self, text: str, title: str | None) -> None:
        self._next = _headings(text)
        self._title = (title or "").strip()
        self._ahead = next(self._next, None)
        self._open: list[tuple[int, int, str]] = []

    def headings_at(self, start: int) -> str | None:
        """The headings that the character at `start` stands under, outermost first; ask in ascending order."""
        while self._ahead and self._ahead[0] <= start:
            level = self._ahead[1]
            self._open = [heading for heading in self._open if heading[1] < level]
            self._open.append(self._ahead)
            self._ahead = next(self._next, None)
        headings = [text for at, level, text in self._open if at < start and (level, text) != (1, self._title)]
        return " › ".join(headings) or None


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Offset, level and words of each heading."""
    for match in _heading_lines(text):
        yield match.start("level"), len(match["level"]), _heading_text(match["text"])


def _heading_lines(text: str) -> Iterator[re.Match[str]]:
    """The lines that are headings, outside of fenced code."""
    fence = ""
    for match in _LINE.finditer(text):
        if mark := match["fence"]:
            if not fence:
                fence = mark
            elif mark.startswith(fence) and not match["info"].strip():
                fence = ""
        elif not fence and _heading_text(match["text"]):
            yield match


def _heading_text(heading: str) -> str:
    """A heading without the white space around it and the # that may close it."""
    text = heading.strip()
    bare = text.rstrip("#")
    return bare.rstrip() if bare.endswith((" ", "\t")) or not bare else text


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
