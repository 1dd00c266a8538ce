"""Stage 1: documents from a folder of prose, from JSON lines, CSV, Parquet or BEIR, as one table."""

import hashlib
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.artifacts import Output, Stage
from pipeline.ingest.block import Block, common_faults, emptied, weed
from pipeline.ingest.choose import Choice, choose_documents
from pipeline.ingest.columns import document_columns
from pipeline.ingest.folder import Folder
from pipeline.ingest.ledger import Ledger
from pipeline.ingest.parts import BOUNDARY, Keys, Parts, Seen, keys_of
from pipeline.ingest.tabular import read_tabular
from schemas.settings import IngestSettings
from schemas.tables import DOCUMENTS

INGEST_DOCUMENTS = Stage("ingest_documents", 1, (), ("documents",))


def ingest_documents(path: str, output: Output, settings: IngestSettings) -> None:
    """Read a file or folder of documents into `documents`; what cannot be read goes to `rejects` with its reason.

    Memory follows the longest row, not the source; besides, 8 bytes are held for each document.

    Raises:
        InputError: there is nothing to read, a file cannot be read at all, or a column is not there.
        TooManyRejects: more than `settings.max_reject_share` of the rows cannot be read.
    """
    choice = choose_documents(path, settings.documents.format)
    ledger = Ledger(output, "documents", path, choice.files)
    parts, seen = Parts(output, "documents"), Seen()
    for file in choice.others:
        ledger.foreign(file)
    for block in _blocks(path, choice, ledger, settings):
        clean, keys = _usable(block, ledger, seen, settings)
        parts.add(_rows(clean), keys % BOUNDARY == 0)
    parts.close()
    ledger.close(settings.max_reject_share)


def _blocks(path: str, choice: Choice, ledger: Ledger, settings: IngestSettings) -> Iterator[Block]:
    columns = document_columns(settings.documents.columns)
    if choice.format == "folder":
        yield from Folder(path, columns, ledger, settings.max_row_bytes).read(choice)
        return
    for file in choice.files:
        yield from read_tabular(file, choice.format, columns, ledger, settings.max_row_bytes)


def _usable(block: Block, ledger: Ledger, seen: Seen, settings: IngestSettings) -> tuple[Block, Keys]:
    """The rows with an id of their own and a text, and the hashes of their ids."""
    sound = weed(block, common_faults(block, "doc_id", settings.max_row_bytes), ledger)
    whole = sound.completed(settings.tenant) if "doc_id" in sound.columns else _named(sound, settings.tenant)
    keys = keys_of(whole.columns["tenant"].to_pylist(), whole.columns["doc_id"].to_pylist())
    repeated = seen.repeated(keys)
    return weed(whole, [("duplicate id", repeated)], ledger), keys[~repeated]


def _named(block: Block, tenant: str) -> Block:
    """Rows of a source without ids are named by their file and line."""
    names = pc.binary_join_element_wise(block.files, block.lines.cast(pa.string()), ":")
    return Block(block.files, block.columns | {"doc_id": names}, block.lines).completed(tenant)


def _rows(block: Block) -> pa.Table:
    titles = emptied(block.columns.get("title", block.nulls()))
    texts = block.columns["text"]
    pairs = zip(titles.to_pylist(), texts.to_pylist(), strict=True)
    hashes = [hashlib.sha256(f"{title or ''}\0{text}".encode()).hexdigest()[:32] for title, text in pairs]
    return DOCUMENTS.rows(
        {
            "tenant": block.columns["tenant"],
            "doc_id": block.columns["doc_id"],
            "title": titles,
            "text": texts,
            "url": emptied(block.columns.get("url", block.nulls())),
            "source": block.files,
            "content_hash": hashes,
        }
    )
