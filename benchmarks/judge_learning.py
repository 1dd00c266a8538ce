"""Judges that learn.

Adaptive judging replayed: people's labels, or recorded verdicts of an LLM, answer for the judge, and the recall of the
pool's positives is measured after a share of the calls. The pool has the top 60 of the seven embedded retrievers, or of
these and all-MiniLM-L6-v2, for up to 50 queries of each collection; what is not listed as relevant counts as not
relevant. homedepot's corpus is the products with a label. Baselines call in the order of BM25's ranks, of the best rank
of any retriever, or of the fused rank, all queries side by side. "Adaptive" is the order alone, without the random
sample for the stopping rule. Recall is also given for queries with 1, 2 to 5, and 6 or more positives in the pool. The
LLM calls 62 % of the pool relevant: half of the calls can find at most 80 % of them.

The learned judge: kappa with people on unseen queries by the number of human labels that it and its threshold were
fitted to, mean of eight draws of labels. homedepot: labels of 500 training and 300 test queries, which share no
product; the corpus is the products with a label and as many others. Elsewhere the whole pool is labelled and half of
the queries are unseen. The other judges are not trained: labels fit their thresholds only.

Takes 30 minutes; `--quick` measures cisi only, without MiniLM.

    python -m benchmarks.judge_learning [--quick] [--only COLLECTION ...] [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.collections_io import Collection, options, present, read_collection, read_jsonl, read_qrels
from benchmarks.quality import MINILM, NEURAL, content_hash
from benchmarks.report import ResultTable, publish
from benchmarks.run_tables import TENANT, write_columns
from darklode.pipeline.base.agreement import cohens_kappa, confusion, fit_threshold, folds, has_enough_labels
from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.judge.adaptive.pool_features import Evidence, gather_evidence
from darklode.pipeline.judge.adaptive.rounds import JudgingRounds
from darklode.pipeline.judge.embedded import EmbeddedJudge
from darklode.pipeline.judge.features import RankingFeatures
from darklode.pipeline.judge.logistic import Logistic
from darklode.pipeline.judge.pairs import pool_pairs
from darklode.pipeline.judge.threshold import fit_smooth_threshold
from darklode.pipeline.retrieve.encoders.caching import CachedQueries, ensure_cached
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.pool import POOL_STAGE, pool
from darklode.pipeline.retrieve.retrievers.blocks import CachedVectors
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.factory import Factory
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.pipeline.retrieve.retrievers.neural import Neural
from darklode.pipeline.retrieve.search import SEARCH, search
from darklode.schemas.pooling import PoolSettings, VectorSearchSettings

NAMES = ("trec-dl-2019", "homedepot", "cranfield", "vaswani", "cisi", "stackfaq")
GRADED = ("trec-dl-2019", "homedepot")
LLM_RUN = "run1_aggregate"  # column of trec-dl-2019/llm_judgments.tsv
MAX_QUERIES, SEED = 50, 13
SHARES = (0.25, 0.5, 0.75)
GROUPS = {"1": (1, 1), "2–5": (2, 5), "6+": (6, 10**9)}
NO_SAMPLE = 1e-9  # one pair
NEVER_REACHED = 0.9999  # a target recall that no sample can show: all pairs are judged
HOMEDEPOT_QUERIES = {"train": 500, "test": 300}
SIZES, DRAWS, MAX_UNSEEN = (100, 200, 400, 800), 8, 3_000
UNJUDGED = -1

BM25_RANK_SQL = """
    SELECT coalesce(r.rank, 1000000) AS rank, p.best_rank FROM pool p
    LEFT JOIN (SELECT * FROM rankings WHERE retriever = 'bm25') r USING (tenant, query_id, chunk_id)
    ORDER BY p.query_id, p.chunk_id
"""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Grades = Mapping[tuple[int, int], int]


@dataclass(frozen=True)
class LabelledCollection:
    """Texts and labels of a collection.

    Attributes:
        grades: label by query row and chunk row; missing pairs are unjudged.
        llm_grades: verdicts of an LLM in the same form; empty if there are none.
        first_grade: lowest relevant grade.
        unseen: query rows on which the learned judge is measured.
    """

    name: str
    chunks: Sequence[str]
    queries: Sequence[str]
    grades: Grades
    llm_grades: Grades
    first_grade: int
    unseen: Ints


def read_labelled(name: str, root: Path) -> LabelledCollection:
    """A collection with at most `MAX_QUERIES` queries."""
    return _read_graded(name, root / name) if name in GRADED else _read_listed(read_collection(name, root))


def _read_listed(collection: Collection) -> LabelledCollection:
    rows = np.sort(np.random.default_rng(SEED).permutation(len(collection.queries))[:MAX_QUERIES])
    grades = {
        (number, int(chunk)): 1
        for number, row in enumerate(rows)
        for chunk in np.flatnonzero(np.isin(collection.owners, collection.relevant[row]))
    }
    queries = [collection.queries[row] for row in rows]
    return LabelledCollection(collection.name, collection.chunks, queries, grades, {}, 1, _half(len(rows)))


def _read_graded(name: str, folder: Path) -> LabelledCollection:
    texts = {row["_id"]: row["text"] for row in read_jsonl(folder / "queries.jsonl")}
    documents = {row["_id"]: row["text"] for row in read_jsonl(folder / "corpus.jsonl")}
    qrels = [row for row in sorted(read_qrels(folder / "qrels" / "test.tsv")) if row[1] in documents]
    if name == "homedepot":
        labelled = {document for _, document, _ in qrels}
        documents = {document: text for document, text in documents.items() if document in labelled}
    names = sorted({query for query, _, _ in qrels})
    chosen = np.sort(np.random.default_rng(SEED).permutation(len(names))[:MAX_QUERIES])
    query_row = {names[row]: number for number, row in enumerate(chosen)}
    chunk_row = {document: row for row, document in enumerate(documents)}
    grades = {(query_row[query], chunk_row[document]): grade for query, document, grade in qrels if query in query_row}
    llm = {
        (query_row[query], chunk_row[document]): grade
        for query, document, grade in _read_llm(folder / "llm_judgments.tsv")
        if query in query_row and document in chunk_row
    }
    queries = [texts[query] for query in query_row]
    return LabelledCollection(name, list(documents.values()), queries, grades, llm, 2, _half(len(queries)))


def _read_llm(path: Path) -> Iterator[tuple[str, str, int]]:
    """Query id, document id and grade of one LLM run; nothing if there is no file."""
    if not path.exists():
        return
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    column = header.split("\t").index(LLM_RUN)
    for line in lines:
        fields = line.split("\t")
        yield fields[0], fields[1], int(fields[column])


def _half(n_queries: int) -> Ints:
    return np.random.default_rng(SEED).permutation(n_queries)[::2]


def read_homedepot(folder: Path) -> LabelledCollection:
    """Labels of training and test queries for the learned judge; the test queries are the unseen ones."""
    random = np.random.default_rng(SEED)
    documents = {row["_id"]: row["text"] for row in read_jsonl(folder / "corpus.jsonl")}
    texts = {row["_id"]: row["text"] for row in read_jsonl(folder / "queries.jsonl")}
    labels: list[tuple[str, str, int]] = []
    test_queries: set[str] = set()
    for part, n_queries in HOMEDEPOT_QUERIES.items():
        qrels = [row for row in read_qrels(folder / "qrels" / f"{part}.tsv") if row[1] in documents]
        chosen = set(random.permutation(sorted({query for query, _, _ in qrels}))[:n_queries])
        labels += [row for row in qrels if row[0] in chosen]
        test_queries |= chosen if part == "test" else set()
    labelled = {document for _, document, _ in labels}
    others = [document for document in documents if document not in labelled]
    included = labelled | {others[row] for row in random.permutation(len(others))[: len(labelled)]}
    chunk_row = {document: row for row, document in enumerate(name for name in documents if name in included)}
    query_row = {query: row for row, query in enumerate(sorted({query for query, _, _ in labels}))}
    grades = {(query_row[query], chunk_row[document]): grade for query, document, grade in labels}
    unseen = np.array([row for query, row in query_row.items() if query in test_queries])
    chunks = [documents[document] for document in chunk_row]
    return LabelledCollection("homedepot", chunks, [texts[query] for query in query_row], grades, {}, 2, unseen)


def build_pool(collection: LabelledCollection, folder: Path, cache: EmbeddingCache | None) -> Tables:
    """Rankings and pool as the stages make them; ids are row numbers. With a cache MiniLM is a retriever."""
    run, chunks = Run(str(folder)), list(collection.chunks)
    ids, query_ids = (
        [f"{row:06}" for row in range(len(chunks))],
        [f"{row:06}" for row in range(len(collection.queries))],
    )
    hashes = [content_hash(text) for text in chunks]
    constant: dict[str, object] = dict.fromkeys(("n_words", "cluster_id", "n_represented", "language_score"), 1)
    queries = {"query_id": query_ids, "text": list(collection.queries)}
    write_columns(run, "queries", queries, language="en", split="train", **constant)
    columns = {"chunk_id": ids, "doc_id": ids, "text": chunks, "content_hash": hashes}
    write_columns(run, "chunks", columns | {"end": [len(text) for text in chunks]}, position=0, start=0)
    retrievers: dict[str, Factory] = dict(own_retrievers())
    if cache:
        retrievers[NEURAL] = MiniLmFactory(chunks, hashes, cache)
    settings = PoolSettings()
    run.execute(run.plan(SEARCH, {}), lambda tables, output: search(tables, output, settings, retrievers=retrievers))
    run.execute(run.plan(POOL_STAGE, {}), lambda tables, output: pool(tables, output, settings))
    return run.tables("queries", "chunks", "pool", "rankings")


@dataclass(frozen=True)
class MiniLmFactory:
    """Builds the retriever by all-MiniLM-L6-v2."""

    chunks: list[str]
    hashes: list[str]
    cache: EmbeddingCache
    shares: str = ""

    def __call__(self, corpus: Corpus) -> Neural:
        """Encodes the chunks, unless their vectors are cached."""
        del corpus  # the chunks are known
        encoder = Deferred(MINILM)
        ensure_cached(encoder, self.cache, [(pa.array(self.hashes), pa.array(self.chunks))])
        shards = self.cache.open(encoder.encoder_id)
        assert shards is not None
        vectors = CachedVectors(shards, self.hashes)
        return Neural(NEURAL, CachedQueries(encoder, self.cache), vectors, VectorSearchSettings(device="cpu"))


@dataclass(frozen=True)
class ReplayPool:
    """A pool to replay adaptive judging on; arrays of shape (n_pairs,).

    Attributes:
        bm25_rank: 1,000,000 if not retrieved.
        best_rank: best rank of any retriever.
        labels: relevance (0 or 1) by judge.
    """

    evidence: Evidence
    bm25_rank: Ints
    best_rank: Ints
    labels: Mapping[str, Floats]


def replay_pool(collection: LabelledCollection, tables: Tables) -> ReplayPool:
    """Evidence, ranks, and the labels of people and of the LLM."""
    chunks = TenantChunks(tables, TENANT)
    with pool_pairs(tables, chunks) as pairs:
        evidence = gather_evidence(tables, chunks, pairs)
        query = _query_rows(pairs.ids(np.arange(len(pairs.rows))))
        chunk = pairs.rows
    ranks = tables.sql(BM25_RANK_SQL)
    judges = {"people": collection.grades} | ({"LLM": collection.llm_grades} if collection.llm_grades else {})
    labels = {
        judge: (_look_up(grades, query, chunk) >= collection.first_grade).astype(np.float64)
        for judge, grades in judges.items()
    }
    if collection.llm_grades:
        labels["people, grade 3"] = (_look_up(collection.grades, query, chunk) >= 3).astype(np.float64)
    return ReplayPool(evidence, ranks["rank"].to_numpy(), ranks["best_rank"].to_numpy(), labels)


def _query_rows(ids: pa.Table) -> Ints:
    return np.array([int(name) for name in ids["query_id"].to_pylist()])


def _look_up(grades: Grades, query: Ints, chunk: Ints) -> Ints:
    return np.array([grades.get(pair, UNJUDGED) for pair in zip(query.tolist(), chunk.tolist(), strict=True)])


def order_of_calls(evidence: Evidence, labels: Floats) -> Ints:
    """Indices of all pairs in the order of `JudgingRounds`, shuffled within a round and after the last of `SHARES`."""
    rounds = JudgingRounds(evidence, recall=NEVER_REACHED, random_share=NO_SAMPLE, seed=SEED)
    random = np.random.default_rng(SEED)
    order: list[Ints] = []
    while sum(len(numbers) for numbers in order) < SHARES[-1] * len(labels):
        numbers = rounds.next_pairs()
        rounds.learn(numbers, labels[numbers])
        order.append(random.permutation(numbers))
    return np.concatenate([*order, random.permutation(rounds.unjudged_pairs)])


def recalls(evidence: Evidence, labels: Floats, order: Ints) -> list[float | None]:
    """Recall at each of `SHARES`: of all positives, then of those of each of `GROUPS`; None without any."""
    positives = np.bincount(evidence.query, labels, evidence.n_queries)
    figures: list[float | None] = []
    in_groups = [positives > 0, *((positives >= low) & (positives <= high) for low, high in GROUPS.values())]
    for in_group in in_groups:
        weights = labels[order] * in_group[evidence.query[order]]
        for share in SHARES:
            n_calls = round(share * len(order))
            figures.append(float(weights[:n_calls].sum() / weights.sum()) if weights.any() else None)
    return figures


def replay_rows(name: str, pool: ReplayPool) -> list[list[object]]:
    """A row per judge and order of calls."""
    evidence = pool.evidence
    rows: list[list[object]] = []
    baselines = {"BM25": pool.bm25_rank, "best rank": pool.best_rank, "fused rank": evidence.fused_rank}
    for judge, labels in pool.labels.items():
        positives = np.bincount(evidence.query, labels, evidence.n_queries)
        sizes = [int(((positives >= low) & (positives <= high)).sum()) for low, high in GROUPS.values()]
        orders = {baseline: np.argsort(ranks, kind="stable") for baseline, ranks in baselines.items()}
        orders["adaptive"] = order_of_calls(evidence, labels)
        label = f"{name}, {judge} ({len(labels):,}; {' / '.join(map(str, sizes))})"
        rows += [[label, order, *recalls(evidence, labels, calls)] for order, calls in orders.items()]
    return rows


def replay_table(title: str, rows: Sequence[Sequence[object]]) -> ResultTable:
    """Recall by order of calls."""
    groups = ["all", *(f"{group} positives" for group in GROUPS)]
    columns = {"collection, judge": "", "order of calls": ""}
    columns |= {f"{group}, {share:.0%}": ".3f" for group in groups for share in SHARES}
    note = "In brackets: pairs; queries with 1 / 2 to 5 / 6 or more positives in the pool."
    return ResultTable(title, columns, rows, note)


@dataclass(frozen=True)
class TrainingPairs:
    """Labelled pairs of a pool; arrays of shape (n_pairs,).

    Attributes:
        features: of the learned judge, shape (n_pairs, n_features).
        prior_variance: of their weights, shape (n_features,).
        scores: of each judge that is not trained.
    """

    query: Ints
    positive: Flags
    unseen: Flags
    features: Floats
    prior_variance: Floats
    scores: Mapping[str, Floats]


def training_pairs(collection: LabelledCollection, tables: Tables) -> TrainingPairs:
    """The labelled pairs; with positives only in the labels, all pairs."""
    chunks = TenantChunks(tables, TENANT)
    with pool_pairs(tables, chunks) as pairs:
        query, chunk = _query_rows(pairs.ids(np.arange(len(pairs.rows)))), pairs.rows
        grades = _look_up(collection.grades, query, chunk)
        rows = np.flatnonzero(grades != UNJUDGED) if collection.name in GRADED else np.arange(len(grades))
        unseen = np.isin(query, collection.unseen)
        surplus = np.random.default_rng(SEED).permutation(np.flatnonzero(unseen[rows]))[MAX_UNSEEN:]
        rows = np.delete(rows, surplus)
        measure, embedded = RankingFeatures(chunks), EmbeddedJudge(TermSpace(chunks.batches()))
        blocks = [pairs.take(part) for part in np.array_split(rows, 1 + len(rows) // 8192)]
        features = np.concatenate([measure(block) for block in blocks])
        parts = [embedded.features(block) for block in blocks]
    scores = {
        "embedded": np.concatenate([part.probability for part in parts]),
        "coverage": np.concatenate([part.coverage for part in parts]),
        "BM25": np.concatenate([part.bm25 for part in parts]),
    }
    positive = grades[rows] >= collection.first_grade
    return TrainingPairs(query[rows], positive, unseen[rows], features, measure.prior_variance, scores)


def draw_labels(pairs: TrainingPairs, size: int) -> Iterator[Ints]:
    """Random labels of queries that are not unseen, with enough of each class."""
    candidates, random = np.flatnonzero(~pairs.unseen), np.random.default_rng([SEED, size])
    while True:
        rows = np.sort(random.permutation(candidates)[:size])
        if has_enough_labels(pairs.positive[rows]):
            yield rows


def learned_kappa(pairs: TrainingPairs, rows: Ints) -> float:
    """Kappa on unseen queries; the threshold is fitted to cross-validated probabilities, as in the stage."""
    features, positive = pairs.features[rows], pairs.positive[rows]
    fold = folds(np.unique(pairs.query[rows], return_inverse=True)[1], SEED)
    probability = np.empty(len(rows), np.float32)
    for held_out in np.unique(fold):
        training = fold != held_out
        model = Logistic.fit(features[training], positive[training], pairs.prior_variance)
        probability[~training] = model.probability(features[~training])
    threshold = fit_smooth_threshold(probability, positive)
    predicted = Logistic.fit(features, positive, pairs.prior_variance).probability(pairs.features[pairs.unseen])
    return kappa(predicted >= (threshold[0] if threshold else 0.5), pairs.positive[pairs.unseen])


def fixed_kappa(pairs: TrainingPairs, rows: Ints, scores: Floats) -> float:
    """Kappa on unseen queries of a judge whose threshold alone is fitted."""
    threshold = fit_threshold(scores[rows].astype(np.float32), pairs.positive[rows])
    return kappa(scores[pairs.unseen] >= (threshold[0] if threshold else 0.5), pairs.positive[pairs.unseen])


def kappa(labels: Flags, positive: Flags) -> float:
    """Cohen's kappa; 0 if all pairs have the same label."""
    return float(np.nan_to_num(cohens_kappa(confusion(labels, positive))))


def learned_rows(name: str, pairs: TrainingPairs, suffix: str) -> list[list[object]]:
    """Mean and standard deviation of kappa over draws; a row per judge."""
    judges: dict[str, Callable[[Ints], float]] = {f"learned{suffix}": partial(learned_kappa, pairs)}
    if not suffix:
        judges |= {
            f"{judge}, threshold fitted": partial(fixed_kappa, pairs, scores=scores)
            for judge, scores in pairs.scores.items()
        }
    rows: list[list[object]] = []
    for judge, measure in judges.items():
        kappas = {size: [measure(labels) for labels in islice(draw_labels(pairs, size), DRAWS)] for size in SIZES}
        rows.append([name, judge, *(f"{np.mean(values):.3f} ± {np.std(values):.3f}" for values in kappas.values())])
    return rows


def learned_table(rows: Sequence[Sequence[object]]) -> ResultTable:
    """Kappa by number of labels."""
    columns = {"collection": "", "judge": ""} | {f"{size} labels": "" for size in SIZES}
    note = "Mean ± standard deviation over eight draws of labels."
    return ResultTable("Learned judge: kappa on unseen queries", columns, rows, note)


def main() -> None:
    """Measure, print and save."""
    arguments = options(__doc__, NAMES).parse_args()
    names = present(["cisi"] if arguments.quick else arguments.only, arguments.collections)
    pools = {"": None} | ({} if arguments.quick else {" with MiniLM": EmbeddingCache(arguments.cache, "float32")})
    replayed: dict[str, list[list[object]]] = {suffix: [] for suffix in pools}
    learned: list[list[object]] = []
    for name in names:
        collection = read_labelled(name, arguments.collections)
        for_training = read_homedepot(arguments.collections / name) if name == "homedepot" else collection
        for suffix, cache in pools.items():
            with tempfile.TemporaryDirectory() as folder:
                tables = build_pool(collection, Path(folder) / "pool", cache)
                replayed[suffix] += replay_rows(name, replay_pool(collection, tables))
                if for_training is not collection:
                    tables = build_pool(for_training, Path(folder) / "training", cache)
                learned += learned_rows(name, training_pairs(for_training, tables), suffix)
    replays = [
        replay_table(f"Adaptive judging: recall after a share of the calls, pool of seven{suffix}", rows)
        for suffix, rows in replayed.items()
    ]
    publish("judge_learning", [*replays, learned_table(learned)], quick=arguments.quick)


if __name__ == "__main__":
    main()
