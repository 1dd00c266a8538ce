"""Documents cut into chunks, the unit that is retrieved and judged (DevRev-Search, 3.2)."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.schemas.settings import ChunkSettings
from darklode.schemas.tables import CHUNKS

if TYPE_CHECKING:
    from langchain_text_splitters import RecursiveCharacterTextSplitter

CHUNK = Stage("chunk", 1, ("documents",), ("chunks",))
SEPARATORS = ["\n\n", "\n", ". ", " ", ""]
Row = dict[str, Any]
_WORD = re.compile(r"[^\W_]")
_LINE = re.compile(r"^ {0,3}(?:(?P<fence>`{3,}|~{3,})(?P<info>.*)|(?P<level>#{1,6})[ \t]+(?P<text>.*))$", re.M)


def chunk(tables: Tables, output: Output, settings: ChunkSettings) -> None:
    """Cut every document into pieces of at most `settings.size` characters, at natural boundaries first.

    Each part of `documents` is a unit of its own: one that is the same as in the last run is not cut again. Documents
    without a text and pieces without a letter or digit go to `rejects`.
    """
    splitter = splitter_of(settings)
    totals: Counter[str] = Counter()
    parts = tables.parts("documents")
    for number, part in enumerate(parts):
        with output.unit(part.sha256, basis=part.sha256) as unit:
            if not unit.done:
                unit.facts.update(_part(tables.part(part), splitter, output, settings.overlap))
        totals.update(unit.facts)
        output.progress(number + 1, len(parts))
    dropped = {"no text": totals["no text"]} if totals["no text"] else {}
    output.count(FunnelStep("chunk", "documents", totals["documents"], "chunks", totals["chunks"], dropped))


def splitter_of(settings: ChunkSettings) -> RecursiveCharacterTextSplitter:
    """What cuts the texts: at paragraphs, then lines, sentences, words, characters."""
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    return RecursiveCharacterTextSplitter(
        separators=SEPARATORS, chunk_size=settings.size, chunk_overlap=settings.overlap, keep_separator="end"
    )


def _part(
    documents: pa.Table, splitter: RecursiveCharacterTextSplitter, output: Output, overlap: int
) -> dict[str, int]:
    """Cut one part's documents, and count documents, chunks and documents without a text."""
    chunks: list[Row] = []
    empty: list[Row] = []
    wordless: list[Row] = []
    for document in documents.select(["tenant", "doc_id", "title", "text"]).to_pylist():
        if not document["text"].strip():
            empty.append(document)
            continue
        for row in _chunks(document, spans(document["text"], splitter, overlap)):
            (chunks if _WORD.search(row["text"]) else wordless).append(row)
    _number(chunks)
    output.write("chunks", CHUNKS.rows({name: [row[name] for row in chunks] for name in CHUNKS.schema.names}))
    _reject(output, "documents", "no text", empty)
    _reject(output, "chunks", "no words", wordless)
    return {"documents": documents.num_rows, "chunks": len(chunks), "no text": len(empty)}


def spans(text: str, splitter: RecursiveCharacterTextSplitter, overlap: int) -> Iterator[tuple[int, int]]:
    """Where each piece of the splitter lies in the text, in characters: first, and one past the last.

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
        text, heading = document["text"][start:end], outline.above(start)
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


def _reject(output: Output, table: str, reason: str, rows: list[Row]) -> None:
    if rows:
        columns = {
            "tenant": [row["tenant"] for row in rows],
            "id": [row["doc_id"] for row in rows],
            "reason": [reason] * len(rows),
            "payload": [row["text"] for row in rows],
        }
        output.reject(CHUNK.name, table, columns)


class _Outline:
    """The Markdown headings of a text, outside of fenced code; a first-level one that repeats the title is left out."""

    def __init__(self, text: str, title: str | None) -> None:
        self._next = _headings(text)
        self._title = (title or "").strip()
        self._ahead = next(self._next, None)
        self._open: list[tuple[int, int, str]] = []

    def above(self, start: int) -> str | None:
        """The headings that the character at `start` stands under, outermost first; ask in ascending order."""
        while self._ahead and self._ahead[0] <= start:
            level = self._ahead[1]
            self._open = [heading for heading in self._open if heading[1] < level]
            self._open.append(self._ahead)
            self._ahead = next(self._next, None)
        named = [text for at, level, text in self._open if at < start and (level, text) != (1, self._title)]
        return " › ".join(named) or None


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Offset, level and words of each heading."""
    fence = ""
    for match in _LINE.finditer(text):
        if mark := match["fence"]:
            if not fence:
                fence = mark
            elif mark.startswith(fence) and not match["info"].strip():
                fence = ""
        elif not fence and (words := _bare(match["text"])):
            yield match.start("level"), len(match["level"]), words


def _bare(heading: str) -> str:
    """A heading without the white space around it and the # that may close it."""
    text = heading.strip()
    bare = text.rstrip("#")
    return bare.rstrip() if bare.endswith((" ", "\t")) or not bare else text


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
