"""Reads the labelled collections (BEIR layout) as chunks, the way the retrievers see them."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from langchain_text_splitters import RecursiveCharacterTextSplitter
from numpy.typing import NDArray

CHUNK_CHARACTERS = 500
COLLECTIONS = Path(__file__).parents[1] / "../shared/collections"
LABELLED = ("cranfield", "vaswani", "cisi", "stackfaq")


@dataclass(frozen=True)
class Collection:
    """One collection.

    Attributes:
        chunks: "title\\nheading\\ntext" of each chunk, in document order.
        owners: document row of each chunk, shape (n_chunks,).
        queries: texts of the judged queries.
        relevant: for each query the rows of its relevant documents, sorted.
    """

    name: str
    chunks: list[str]
    owners: NDArray[np.int64]
    queries: list[str]
    relevant: list[NDArray[np.int64]]


def options(about: str | None, names: Sequence[str]) -> argparse.ArgumentParser:
    """Of a script over labelled collections: where these lie, which are taken, and where vectors are kept."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--only", nargs="+", default=list(names))
    parser.add_argument("--cache", default=tempfile.mkdtemp())
    return parser


def existing(path: Path) -> Path:
    """The path; the benchmark ends with a sentence and exit code 0 where it is missing: collections come separately."""
    if not path.exists():
        print(f"Skipped: {path} is missing. `--collections FOLDER` names the folder with the labelled collections.")
        raise SystemExit(0)
    return path


def present(names: Sequence[str], root: Path) -> list[str]:
    """The collections that lie in `root`; the others are named on the screen, and the benchmark ends if none does."""
    there = [name for name in names if (root / name).is_dir()]
    if not there:
        existing(root / names[0])
    for name in names:
        if name not in there:
            print(f"Skipped collection {name}: {root / name} is missing.")
    return there


def read_jsonl(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a JSON Lines file."""
    with existing(path).open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def read_collection(name: str, root: Path = COLLECTIONS, least: int = 1) -> Collection:
    """The collection in `root/name`; one without queries has none. Documents of grade `least` and more are relevant."""
    documents = list(read_jsonl(root / name / "corpus.jsonl"))
    splitter = RecursiveCharacterTextSplitter(chunk_size=CHUNK_CHARACTERS, chunk_overlap=0)
    pieces = [splitter.split_text(document["text"]) or [""] for document in documents]
    titled = zip((document.get("title", "") for document in documents), pieces, strict=True)
    chunks = [f"{title}\n\n{piece}" for title, parts in titled for piece in parts]
    owners = np.repeat(np.arange(len(documents)), [len(ps) for ps in pieces])
    queries, relevant = _read_judged(root / name, {d["_id"]: row for row, d in enumerate(documents)}, least)
    return Collection(name, chunks, owners, queries, relevant)


def _read_judged(folder: Path, row_of: dict[str, int], least: int) -> tuple[list[str], list[NDArray[np.int64]]]:
    qrels = folder / "qrels" / "test.tsv"
    if not qrels.exists():
        return [], []
    positives: dict[str, set[int]] = {}
    for line in qrels.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, score = line.split("\t")
        if int(score) >= least and document in row_of:
            positives.setdefault(query, set()).add(row_of[document])
    texts = {row["_id"]: row["text"] for row in read_jsonl(folder / "queries.jsonl")}
    judged = [query for query in texts if query in positives]
    return [texts[q] for q in judged], [np.array(sorted(positives[q]), dtype=np.int64) for q in judged]
