"""Quality of judges.

Agreement of judges that need no server with people: the embedded judge, the cosine of all-MiniLM-L6-v2 (the encoder
judge), and as baselines the idf-weighted share of the query's terms that a chunk holds and BM25's score divided by the
query's best. homedepot and trec-dl-2019 have grades by people (relevant: 2 and more). Of the other collections the
pairs are the pool of the seven embedded retrievers and MiniLM for 60 queries each; they list positives only, so what is
not listed counts as not relevant. Every threshold is chosen on the other collections. The embedded judge's formula is
fitted to all of them; "left out" fits it to the others. "As shipped" uses the shipped formula and threshold. Top
precision: share of relevant pairs among the most probable ones, as many as the shipped formula gives a probability of
at least one half. Test and training positives: precision of the two label sets with default settings, where the judge's
probabilities are fitted to the other collections; the baseline is BM25's first result of each query.

Ranking of systems: Kendall's tau between thirteen systems (the seven retrievers, three fusions and three made worse)
ranked by nDCG@10 with a judge's labels and with people's. The baseline is people against people: systems ranked on
one half of the queries and on the other, mean over 200 random halves. Upper half: tau within the seven systems that
people rank best, which is what choosing among good systems needs; systems made worse raise tau over all of them.

Takes 40 minutes, most of it for MiniLM's vectors; `--quick` leaves out MiniLM and measures two collections (1 min).

    python -m benchmarks.judge_quality [--quick] [--only COLLECTION ...] [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.stats import kendalltau
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.collections_io import Collection, options, present, read_collection, read_jsonl, read_qrels
from benchmarks.quality import (
    MINILM,
    POOL_DEPTH,
    Rankings,
    content_hash,
    fused_order,
    rank,
    rank_by_minilm,
    union,
)
from benchmarks.report import ResultTable, publish
from darklode.pipeline.base.agreement import cohens_kappa, confusion
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.judge.cosine import Cosine
from darklode.pipeline.judge.embedded import EmbeddedJudge
from darklode.pipeline.judge.kinds.embedded import EmbeddedSettings
from darklode.pipeline.judge.kinds.encoder import EncoderJudgeSettings
from darklode.pipeline.judge.label import MIN_TEST_QUERIES, PLAUSIBLE, precision_cut
from darklode.pipeline.judge.port import PAIRS
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.schemas.judging import LabelSettings
from darklode.schemas.settings import TripletSettings

GRADED = ("homedepot", "trec-dl-2019")
SAMPLED_QUERIES, SEED = 60, 13
COVERAGE, BM25, EMBEDDED, COSINE = "idf coverage (baseline)", "BM25 (baseline)", "embedded", "MiniLM cosine"
LEFT_OUT, SHIPPED = "embedded, left out", "embedded, as shipped"
MEASURES = ("kappa", "AUC", "precision", "recall", "top precision", "test positives", "training positives")
COSINE_THRESHOLD = 0.545  # the encoder judge's probability is its default threshold there
QUANTILES = np.linspace(0.3, 0.999, 300)
BLOCK = 1 << 13
CUTOFF, HALVES, HALVES_SEED = 10, 200, 7
MIN_SYSTEMS = 3
"""Minimum number of systems in the upper half."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class LabelledPairs:
    """Judged pairs of one collection; arrays of shape (n_pairs,).

    Attributes:
        query: query row.
        positive: relevant to people.
        scores: by judge.
        inputs: inputs of the embedded judge's formula, shape (n_pairs, 2).
    """

    query: Ints
    positive: Flags
    scores: Mapping[str, Floats]
    inputs: Floats


def score_pairs(
    queries: Sequence[str], chunks: Sequence[str], query: Ints, chunk: Ints, cache: EmbeddingCache | None
) -> tuple[dict[str, Floats], Floats]:
    """Scores of each judge for the pairs of these query and chunk rows, and the inputs of the embedded judge's formula.

    Without a cache MiniLM is left out.
    """
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Corpus(lambda: iter([chunks]), len(chunks), Path(scratch))
        judge, pairs = EmbeddedJudge(corpus.terms), _pair_table(queries, chunks, query, chunk)
        blocks = [judge.features(pairs.slice(start, BLOCK)) for start in range(0, pairs.num_rows, BLOCK)]
    scores = {
        COVERAGE: np.concatenate([block.coverage for block in blocks]),
        BM25: np.concatenate([block.bm25 for block in blocks]),
        EMBEDDED: np.concatenate([block.probability for block in blocks]),
    }
    inputs = np.concatenate([np.stack([block.answered, block.information], axis=1) for block in blocks])
    return scores | ({COSINE: Cosine(Deferred(MINILM), cache)(pairs)[:, 0]} if cache else {}), inputs


def _pair_table(queries: Sequence[str], chunks: Sequence[str], query: Ints, chunk: Ints) -> pa.Table:
    """Rows of `PAIRS`; ids are empty, because no judge here reads them."""
    rows, hashes = pa.array(chunk), pa.array([content_hash(text) for text in chunks])
    columns = dict.fromkeys(PAIRS.names, pa.repeat("", len(query)))
    columns |= dict.fromkeys(("title", "heading"), pa.nulls(len(query), pa.string()))
    columns |= {"query": pa.array(queries).take(pa.array(query)), "text": pa.array(chunks).take(rows)}
    columns |= {"chunk_hash": hashes.take(rows)}
    return pa.table([columns[name] for name in PAIRS.names], schema=PAIRS)


def pooled_pairs(collection: Collection, cache: EmbeddingCache | None) -> LabelledPairs:
    """The pool of a sample of the queries."""
    sample = np.sort(np.random.default_rng(SEED).permutation(len(collection.queries))[:SAMPLED_QUERIES])
    queries, relevant = [collection.queries[row] for row in sample], [collection.relevant[row] for row in sample]
    collection = replace(collection, queries=queries, relevant=relevant)
    rankings = rank(collection, POOL_DEPTH) | ({"MiniLM": rank_by_minilm(collection, cache)} if cache else {})
    pool = union(rankings, POOL_DEPTH)
    query, chunk = np.repeat(np.arange(len(pool)), [len(rows) for rows in pool]), np.concatenate(pool)
    scores, inputs = score_pairs(queries, collection.chunks, query, chunk, cache)
    return LabelledPairs(query, people_labels(collection)[query, chunk], scores, inputs)


def graded_pairs(folder: Path, cache: EmbeddingCache | None) -> LabelledPairs:
    """The labelled test pairs of a collection with grades; grade 2 and more is relevant."""
    documents = {row["_id"]: row["text"] for row in read_jsonl(folder / "corpus.jsonl")}
    texts = {row["_id"]: row["text"] for row in read_jsonl(folder / "queries.jsonl")}
    qrels = [row for row in sorted(read_qrels(folder / "qrels" / "test.tsv")) if row[1] in documents]
    row_of, number = {name: row for row, name in enumerate(documents)}, dict[str, int]()
    query = np.array([number.setdefault(name, len(number)) for name, _, _ in qrels])
    chunk = np.array([row_of[document] for _, document, _ in qrels])
    scores, inputs = score_pairs([texts[name] for name in number], list(documents.values()), query, chunk, cache)
    return LabelledPairs(query, np.array([grade >= 2 for *_, grade in qrels]), scores, inputs)


def refit(collections: Sequence[LabelledPairs]) -> LogisticRegression:
    """The embedded judge's formula, fitted to some collections of equal weight."""
    inputs = np.concatenate([pairs.inputs for pairs in collections])
    positive = np.concatenate([pairs.positive for pairs in collections])
    weights = np.concatenate([np.full(len(pairs.query), 1 / len(pairs.query)) for pairs in collections])
    return LogisticRegression(C=1e6).fit(inputs, positive, sample_weight=weights * len(weights) / weights.sum())


def people_labels(collection: Collection) -> Flags:
    """Chunks whose document is relevant to people, shape (n_queries, n_chunks)."""
    return np.stack([np.isin(collection.owners, documents) for documents in collection.relevant])


def kappa(labels: Flags, positive: Flags) -> float:
    """Cohen's kappa; 0 if all pairs have the same label."""
    return float(np.nan_to_num(cohens_kappa(confusion(labels, positive))))


def fit_threshold(collections: Sequence[LabelledPairs], judge: str) -> float:
    """The threshold with the highest mean kappa over several collections."""
    candidates = np.unique(np.quantile(np.concatenate([pairs.scores[judge] for pairs in collections]), QUANTILES))
    means = [
        np.mean([kappa(pairs.scores[judge] >= cut, pairs.positive) for pairs in collections]) for cut in candidates
    ]
    return float(candidates[np.argmax(means)])


def mean_auc(pairs: LabelledPairs, judge: str) -> float:
    """Mean area under the ROC curve over the queries that have positives and negatives."""
    by_query = [pairs.query == query for query in np.unique(pairs.query)]
    mixed = [rows for rows in by_query if 0 < pairs.positive[rows].sum() < rows.sum()]
    return float(np.mean([roc_auc_score(pairs.positive[rows], pairs.scores[judge][rows]) for rows in mixed]))


def agreement(pairs: LabelledPairs, other_pairs: Sequence[LabelledPairs]) -> dict[tuple[str, str], float]:
    """Figures by measure and judge, with thresholds chosen on other collections."""
    formula = refit(other_pairs)
    pairs, *others = [
        replace(part, scores=dict(part.scores) | {LEFT_OUT: formula.predict_proba(part.inputs)[:, 1]})
        for part in (pairs, *other_pairs)
    ]
    labels = {judge: scores >= fit_threshold(others, judge) for judge, scores in pairs.scores.items()}
    labels[SHIPPED] = pairs.scores[EMBEDDED] >= EmbeddedSettings().cut
    figures: dict[tuple[str, str], float] = {}
    for judge, predicted in labels.items():
        hits = float((predicted & pairs.positive).sum())
        figures["kappa", judge] = kappa(predicted, pairs.positive)
        figures["precision", judge] = hits / max(float(predicted.sum()), 1.0)
        figures["recall", judge] = hits / float(pairs.positive.sum())
    n_top = max(int((pairs.scores[EMBEDDED] >= 0.5).sum()), 1)
    for judge, scores in pairs.scores.items():
        figures["AUC", judge] = mean_auc(pairs, judge)
        figures["top precision", judge] = float(pairs.positive[np.argsort(-scores, kind="stable")[:n_top]].mean())
    for judge in (EMBEDDED, COSINE):
        if judge in pairs.scores:
            test, training = label_sets(pairs, others, judge)
            figures["test positives", judge] = float(pairs.positive[test].mean())
            figures["training positives", judge] = float(pairs.positive[training].mean())
    first = best_rows(pairs, pairs.scores[BM25])
    figures["test positives", BM25] = figures["training positives", BM25] = float(pairs.positive[first].mean())
    return figures


def label_sets(pairs: LabelledPairs, others: Sequence[LabelledPairs], judge: str) -> tuple[Ints, Ints]:
    """Rows of the test and of the training positives that the stage `label` makes of a judge's scores by default.

    The probabilities are fitted to the other collections, by the embedded judge's formula or to the cosine.
    """
    if judge == EMBEDDED:
        probability, threshold = pairs.scores[LEFT_OUT], float(EmbeddedSettings().cut)
    else:
        as_inputs = [replace(part, inputs=part.scores[judge][:, None]) for part in (pairs, *others)]
        probability = refit(as_inputs[1:]).predict_proba(as_inputs[0].inputs)[:, 1]
        threshold = EncoderJudgeSettings(encoder="minilm").cut
    settings, is_positive = LabelSettings(), probability >= threshold
    best = best_rows(pairs, probability)
    surest = best[is_positive[best]][np.argsort(-probability[best[is_positive[best]]], kind="stable")]
    test_cut = precision_cut(probability[is_positive], settings.test_precision)
    test = np.union1d(np.flatnonzero(is_positive & (probability >= test_cut)), surest[:MIN_TEST_QUERIES])
    training_cut = precision_cut(probability[is_positive], settings.training_precision)
    training = [_training_rows(pairs.query == query, probability, training_cut) for query in np.unique(pairs.query)]
    return test, np.concatenate(training)


def _training_rows(of_query: Flags, probability: Floats, cut: float) -> Ints:
    """A query's most probable positives, at most `triplets.max_positives`; or its best plausible candidate."""
    rows = np.flatnonzero(of_query)
    rows = rows[np.argsort(-probability[rows], kind="stable")]
    certain = rows[probability[rows] >= cut][: TripletSettings().max_positives]
    return certain if len(certain) else rows[:1][probability[rows[:1]] >= PLAUSIBLE]


def best_rows(pairs: LabelledPairs, scores: Floats) -> Ints:
    """Row of each query's best pair, shape (n_queries,)."""
    order = np.lexsort((-scores, pairs.query))
    _, first = np.unique(pairs.query[order], return_index=True)
    return np.asarray(order[first])


def agreement_table(figures: Mapping[str, Mapping[tuple[str, str], float]], sizes: Mapping[str, int]) -> ResultTable:
    """Rows by measure and judge, columns by collection."""
    keys = sorted(next(iter(figures.values())), key=lambda key: (MEASURES.index(key[0]), key))
    rows = [[*key, *(values[key] for values in figures.values())] for key in keys]
    columns = {"measure": "", "judge": ""} | dict.fromkeys(figures, ".3f")
    note = "Pairs: " + ", ".join(f"{name} {size:,}" for name, size in sizes.items()) + "."
    return ResultTable(
        "Agreement with people", columns, rows, note, ["sentence-transformers"] if "MiniLM" in str(keys) else []
    )


def thirteen_systems(seven: Rankings, n_chunks: int) -> Rankings:
    """The seven rankings and six made from them, the last three to be worse."""
    lists = {name: rows[:, :POOL_DEPTH] for name, rows in seven.items()}

    def fused(*names: str) -> Ints:
        orders = fused_order({name: lists[name] for name in names or lists}, n_chunks)
        return np.stack([np.pad(rows, (0, POOL_DEPTH), constant_values=-1)[:POOL_DEPTH] for rows in orders])

    return lists | {
        "all seven, fused": fused(),
        "bm25 and lsa_feedback, fused": fused("bm25", "lsa_feedback"),
        "character and ppmi, fused": fused("character", "ppmi"),
        "bm25 without its first result": lists["bm25"][:, 1:],
        "lsa_feedback, every other result": lists["lsa_feedback"][:, ::2],
        "all seven, fused, first ten reversed": fused()[:, CUTOFF - 1 :: -1],
    }


def ndcg(rows: Ints, relevant: Flags) -> Floats:
    """nDCG@10 of each query, 0 if nothing is relevant, shape (n_queries,)."""
    first = rows[:, :CUTOFF]
    hits = np.take_along_axis(relevant, np.maximum(first, 0), axis=1) & (first >= 0)
    discount = 1 / np.log2(np.arange(2, CUTOFF + 2))
    ideal = np.concatenate([[1], np.cumsum(discount)])[np.minimum(relevant.sum(axis=1), CUTOFF)]
    return np.asarray(hits @ discount[: first.shape[1]] / ideal * relevant.any(axis=1))


def tau(left: Floats, right: Floats) -> float:
    """Kendall's tau-b between the mean values of systems, both of shape (n_systems, n_queries)."""
    return float(kendalltau(left.mean(axis=1), right.mean(axis=1)).statistic)


def tau_of_upper_half(left: Floats, right: Floats) -> float | None:
    """Kendall's tau within the better half of the systems as ranked by `right`, rounded up; None for fewer than
    `MIN_SYSTEMS`.

    Systems made worse on purpose are easy to tell from good ones, so that tau over all systems looks better than the
    judge is at choosing among good systems.
    """
    n_upper = (len(right) + 1) // 2
    if n_upper < MIN_SYSTEMS:
        return None
    upper = np.argsort(-right.mean(axis=1), kind="stable")[:n_upper]
    return tau(left[upper], right[upper])


def tau_of_halves(
    left: Floats, right: Floats, agreement: Callable[[Floats, Floats], float | None] = tau
) -> float | None:
    """Mean tau between systems ranked by `left` on one half of the queries and by `right` on the other.

    Args:
        left: values of systems, shape (n_systems, n_queries), as `right`.
        right: the reference.
        agreement: `tau` or `tau_of_upper_half`.
    """
    random, taus = np.random.default_rng(HALVES_SEED), []
    for _ in range(HALVES):
        first, second = np.array_split(random.permutation(left.shape[1]), [left.shape[1] // 2])
        taus.append(agreement(left[:, first], right[:, second]))
    known = [value for value in taus if value is not None and np.isfinite(value)]
    return float(np.mean(known)) if known else None


def ranking_row(collection: Collection, cache: EmbeddingCache | None) -> list[object]:
    """Collection, queries, tau of people by halves (of all systems, and of the upper half), then of each judge by
    halves, on all queries, and on all queries within the upper half.
    """
    rankings, people = rank(collection), people_labels(collection)
    systems, pool = thirteen_systems(rankings, len(collection.chunks)), union(rankings, POOL_DEPTH)
    query, chunk = np.repeat(np.arange(len(pool)), [len(rows) for rows in pool]), np.concatenate(pool)
    scores, _ = score_pairs(collection.queries, collection.chunks, query, chunk, cache)
    by_people = np.stack([ndcg(rows, people) for rows in systems.values()])
    row: list[object] = [collection.name, len(collection.queries), tau_of_halves(by_people, by_people)]
    row.append(tau_of_halves(by_people, by_people, tau_of_upper_half))
    for judge, threshold in ((EMBEDDED, EmbeddedSettings().cut), (COSINE, COSINE_THRESHOLD)):
        if judge not in scores:
            row += [None, None, None]
            continue
        labels = np.zeros_like(people)
        labels[query, chunk] = scores[judge] >= threshold
        by_judge = np.stack([ndcg(rows, labels) for rows in systems.values()])
        row += [tau_of_halves(by_judge, by_people), tau(by_judge, by_people)]
        row.append(tau_of_upper_half(by_judge, by_people))
    return row


def ranking_table(rows: Sequence[Sequence[object]]) -> ResultTable:
    """Taus by collection."""
    columns = {"collection": "", "queries": ",d", "people (baseline), halves": ".2f"}
    columns |= {"people, halves, upper half": ".2f"}
    columns |= {
        f"{judge} judge, {of}": ".2f"
        for judge in ("embedded", "encoder")
        for of in ("halves", "all queries", "upper half")
    }
    return ResultTable("Ranking thirteen systems: Kendall's tau", columns, rows)


def main() -> None:
    """Measure, print and save."""
    arguments = options(__doc__).parse_args()
    names = present(["cranfield", "cisi"] if arguments.quick else arguments.only, arguments.collections)
    cache = None if arguments.quick else EmbeddingCache(arguments.cache, "float32")
    collections = {name: read_collection(name, arguments.collections) for name in names}
    pairs = {name: pooled_pairs(collection, cache) for name, collection in collections.items()}
    for name in GRADED:
        if (folder := arguments.collections / name).is_dir():
            pairs[name] = graded_pairs(folder, cache)
    figures = {
        name: agreement(own, [other for other in pairs.values() if other is not own]) for name, own in pairs.items()
    }
    rows = [ranking_row(collection, cache) for collection in collections.values()]
    sizes = {name: len(own.query) for name, own in pairs.items()}
    publish("judge_quality", [agreement_table(figures, sizes), ranking_table(rows)], quick=arguments.quick)


if __name__ == "__main__":
    main()
