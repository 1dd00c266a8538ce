"""Reads the labelled collections (BEIR layout)."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from langchain_text_splitters import RecursiveCharacterTextSplitter
from numpy.typing import NDArray

from benchmarks import report

CHUNK_CHARACTERS = 500
COLLECTIONS = Path(__file__).parents[1] / "../shared/collections"
LABELLED = ("cranfield", "vaswani", "cisi", "stackfaq")

Qrels = list[tuple[str, str, int]]
"""Query id, document id, grade."""


@dataclass(frozen=True)
class Collection:
    """One collection, cut into chunks as retrievers see them.

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


def options(about: str | None, names: Sequence[str] = LABELLED) -> argparse.ArgumentParser:
    """Options of a benchmark over labelled collections."""
    parser = report.options(about)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS, help="folder of the labelled collections")
    parser.add_argument("--only", nargs="+", choices=names, default=list(names), help="collections to measure")
    parser.add_argument(
        "--cache", default=tempfile.gettempdir() + "/darklode-bench-cache", help="vectors are kept here"
    )
    return parser


def skip(reason: str) -> NoReturn:
    """End the benchmark with exit code 0."""
    print(f"Skipped: {reason}")
    raise SystemExit(0)


def existing(path: Path) -> Path:
    """The path; the benchmark is skipped if it is missing, because collections come separately."""
    if not path.exists():
        skip(f"{path} is missing. `--collections FOLDER` names the folder of the labelled collections.")
    return path


def present(names: Sequence[str], root: Path) -> list[str]:
    """The collections in `root`; the benchmark is skipped if there is none."""
    existing_names = [name for name in names if (root / name).is_dir()]
    if not existing_names:
        existing(root / names[0])
    for name in names:
        if name not in existing_names:
            print(f"Skipped collection {name}: {root / name} is missing.")
    return existing_names


def read_jsonl(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a JSON Lines file."""
    with existing(path).open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def read_qrels(path: Path) -> Qrels:
    """Judgments of a TSV file with a header line."""
    lines = existing(path).read_text(encoding="utf-8").splitlines()[1:]
    return [(query, document, int(grade)) for query, document, grade in (line.split("\t") for line in lines)]


def read_collection(name: str, root: Path = COLLECTIONS, min_grade: int = 1) -> Collection:
    """The collection in `root/name`; documents of `min_grade` and more are relevant."""
    documents = list(read_jsonl(root / name / "corpus.jsonl"))
    splitter = RecursiveCharacterTextSplitter(chunk_size=CHUNK_CHARACTERS, chunk_overlap=0)
    pieces = [splitter.split_text(document["text"]) or [""] for document in documents]
    titled = zip((document.get("title", "") for document in documents), pieces, strict=True)
    chunks = [f"{title}\n\n{piece}" for title, parts in titled for piece in parts]
    owners = np.repeat(np.arange(len(documents)), [len(parts) for parts in pieces])
    row_of = {document["_id"]: row for row, document in enumerate(documents)}
    positives: dict[str, set[int]] = {}
    for query, document, grade in read_qrels(root / name / "qrels" / "test.tsv"):
        if grade >= min_grade and document in row_of:
            positives.setdefault(query, set()).add(row_of[document])
    texts = {row["_id"]: row["text"] for row in read_jsonl(root / name / "queries.jsonl") if row["_id"] in positives}
    relevant = [np.array(sorted(positives[query]), dtype=np.int64) for query in texts]
    return Collection(name, chunks, owners, list(texts.values()), relevant)
