"""Training both towers: views, margin and dimensions.

`train-towers --stage 1` from people's labels: plain contrast (one view, no margin loss, one vector length), contrast
with three document views, margin loss and nested dimensions, each added alone, and all three. nDCG@10 on test queries
that share no positive with training, mean over seeds; differences to plain contrast with paired bootstrap intervals
over queries. Beside them the encoder as it is, and `adapt` by `linear` from the same labels. Both towers start from the
first layers of all-MiniLM-L6-v2 and read 64 tokens, so that two cores can train all cells. Hard negatives: texts that
all-MiniLM-L6-v2 ranks among a query's first hundred, with a score of at most .95 of the positive's. Documents without
title (homedepot and insuranceqa have none) get the first third of their words, at most 12, as title. The learning rate
is selected on validation queries. Every cell (collection, variant, seed) is saved in `--work`: the same command
resumes, and the table has the finished cells. Takes hours: the published table is that of `--layers 2 --rates 1e-4`,
with the seeds finished so far. `--quick` trains cranfield for 4 steps (5 min).

    python -m benchmarks.stage_one [--quick] [--only COLLECTION ...] [--variants VARIANT ...] [--seeds N] [--steps N]
                                   [--layers N] [--rates RATE ...] [--work FOLDER] [--collections FOLDER]
                                   [--cache FOLDER]
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.adapt import LEAST_GRADE, MINILM, TrainingLabels, adapt, document_hash, make_run, people_labels
from benchmarks.collections_io import options, present, read_jsonl
from benchmarks.label_weights import UNSEEN_SQL
from benchmarks.report import ResultTable, publish
from benchmarks.run_tables import write_columns
from darklode.flows.jobs.train_both_towers import steps, topical
from darklode.pipeline.base.artifacts import Run, Tables, key_of
from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.base.types import Doubles, Floats
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.retrieve.encoders.caching import CachedQueries, CachedTexts
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.dual.stage import DUAL_TRIALS_STAGE, DualInputs, best_towers
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings
from darklode.schemas.towers import DualSettings

PLAIN, ALL_PARTS, UNTRAINED, ADAPTED = "plain contrast", "all", "untrained", "adapt, linear"
WITHOUT_PARTS: dict[str, Any] = {"views": ("all",), "margin_loss_weight": 0.0, "matryoshka_dims": (128,)}
PARTS = {"views": "views", "margin": "margin_loss_weight", "nested dimensions": "matryoshka_dims"}
VARIANTS: dict[str, dict[str, Any]] = {
    PLAIN: WITHOUT_PARTS,
    **{
        f"+ {part}": {name: value for name, value in WITHOUT_PARTS.items() if name != setting}
        for part, setting in PARTS.items()
    },
    ALL_PARTS: {},
}
COLLECTIONS = ("insuranceqa", "homedepot")
TOKENS, RATES, DIMENSIONS = 64, (2e-5, 1e-4), (16, 128)
TITLE_SHARE, MAX_TITLE_WORDS = 3, 12
NEGATIVES, NEGATIVE_DEPTH, MAX_SHARE_OF_POSITIVE, QUERIES_PER_BLOCK = 4, 100, 0.95, 256
DOCUMENT_COLUMNS = ("doc_id", "text", "source", "content_hash")
MEASURE, DEPTH = "nDCG@10", 10


@dataclass(frozen=True)
class Budget:
    """Size of the training.

    Attributes:
        layers: number of first layers of the encoder that both towers keep.
        steps: training steps.
        rates: learning rates to select from.
    """

    layers: int
    steps: int
    rates: tuple[float, ...]


def cut_encoder(folder: Path, layers: int) -> SentenceTransformersSettings:
    """The first layers of all-MiniLM-L6-v2, saved in a folder."""
    model = folder / f"encoder-{layers}"
    if not (model / "modules.json").exists():
        loaded: Any = load_model(MINILM, "cpu")
        encoder = loaded[0].auto_model
        encoder.encoder.layer = encoder.encoder.layer[:layers]
        encoder.config.num_hidden_layers = layers
        loaded.save_pretrained(str(model), create_model_card=False)
    return SentenceTransformersSettings(model=str(model), device="cpu", max_seq_length=TOKENS)


def with_titles(collection: Path, folder: Path) -> Path:
    """A copy of a collection in which every document has a title."""
    out = folder / collection.name
    out.mkdir(parents=True, exist_ok=True)
    for name in ("queries.jsonl", "qrels"):
        if not (out / name).exists():
            (out / name).symlink_to((collection / name).resolve())
    rows = (json.dumps(row | _title_and_text(row)) for row in read_jsonl(collection / "corpus.jsonl"))
    (out / "corpus.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return out


def _title_and_text(row: Mapping[str, Any]) -> dict[str, str]:
    words = row["text"].split()
    n_title = min(MAX_TITLE_WORDS, len(words) // TITLE_SHARE)
    if row.get("title") or not n_title:
        return {"title": row.get("title", ""), "text": row["text"]}
    return {"title": " ".join(words[:n_title]), "text": " ".join(words[n_title:])}


def with_negatives(collection: Path, training: TrainingLabels, cache: EmbeddingCache) -> TrainingLabels:
    """Add hard negatives by the whole encoder; a label's texts are never negatives of its query."""
    documents = list(read_jsonl(collection / "corpus.jsonl"))
    texts = {row["_id"]: row["text"] for row in read_jsonl(collection / "queries.jsonl")}
    titles, contents = ([row.get(name, "") for row in documents] for name in ("title", "text"))
    rows = pa.table({"title": titles, "heading": pa.nulls(len(titles), pa.string()), "text": contents})
    hashes = pa.array(map(document_hash, titles, contents))
    vectors = CachedTexts(Deferred(MINILM), cache)((hashes, view(rows).combine_chunks()))
    query_ids = sorted({query for query, _ in training.positives})
    queries = _unit(CachedQueries(Deferred(MINILM), cache)([texts[query] for query in query_ids]))
    unit_vectors, ids = _unit(vectors), [row["_id"] for row in documents]
    row_of = {name: number for number, name in enumerate(ids)}
    labelled: dict[str, list[int]] = {}
    for query, document, *_ in training.labels:
        labelled.setdefault(query, []).append(row_of[document])
    candidates = {}
    for start in range(0, len(query_ids), QUERIES_PER_BLOCK):
        cosines = queries[start : start + QUERIES_PER_BLOCK] @ unit_vectors.T
        for query, row in zip(query_ids[start : start + QUERIES_PER_BLOCK], cosines, strict=True):
            own = dict(zip(labelled[query], row[labelled[query]].tolist(), strict=True))
            row[labelled[query]] = -1
            best = np.argpartition(-row, NEGATIVE_DEPTH)[:NEGATIVE_DEPTH]
            best = best[np.argsort(-row[best])]
            candidates[query] = best, row[best], own
    negatives = []
    for query, document in training.positives:
        best, cosines, own = candidates[query]
        allowed = best[cosines <= MAX_SHARE_OF_POSITIVE * own[row_of[document]]]
        spread = np.unique(np.linspace(0, max(0, len(allowed) - 1), NEGATIVES).astype(int))
        negatives.append([ids[row] for row in allowed[spread[: len(allowed)]]])
    return replace(training, negative_ids=negatives)


def _unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9), np.float32)


@dataclass(frozen=True)
class TowerBenchmark:
    """A collection to train and test on.

    Attributes:
        name: the collection.
        run: its documents, labels and triplets.
        encoder: initial encoder of both towers.
        budget: size of the training.
        work: folder of the finished cells.
    """

    name: str
    run: Run
    encoder: SentenceTransformersSettings
    budget: Budget
    work: Path

    def cell(self, variant: str, seed: int) -> dict[str, Any]:
        """Scores by query, seconds and selected step of one cell; trained unless it is saved."""
        settings = self._settings(variant, seed)
        key = key_of(self.name, self.encoder.encoder_id(), settings.model_dump(mode="json"))
        saved = self.work / f"{self.name}-{variant}-{seed}-{key[:8]}.json"
        if not saved.exists():
            folder = saved.with_suffix("")
            result = {"variant": variant, "seed": seed} | self._train(Run(str(folder)), settings)
            partial = saved.with_suffix(".tmp")
            partial.write_text(json.dumps(result))
            partial.rename(saved)
            shutil.rmtree(folder)
            print(self.name, variant, seed, {name: result[name] for name in ("mean", "seconds", "step")}, flush=True)
        return cast(dict[str, Any], json.loads(saved.read_text()))

    def _settings(self, variant: str, seed: int) -> Settings:
        dual = VARIANTS[variant] | {"max_steps": self.budget.steps, "learning_rates": self.budget.rates}
        return Settings(seed=seed, dual=DualSettings(**dual))

    def _train(self, out: Run, settings: Settings) -> dict[str, Any]:
        source = TrainingSource(self.run, 0, False, 0)
        cache = CacheSettings(root=f"{out.store.url}/cache")
        base = topical(BaseEncoder(self.encoder, cache, VectorSearchSettings(device="cpu"), (source,)))
        seconds = 0.0
        for step in steps(base, settings):
            began = time.process_time()
            out.execute(step.plan(out), step.execute)
            if step.stage is DUAL_TRIALS_STAGE:
                seconds = time.process_time() - began
                break
        tables = out.tables()
        lora = settings.adapt.only("lora_rank", "lora_alpha", "target_modules")
        towers = best_towers(tables, DualInputs(self.encoder, base.sources), settings.dual, lora)
        best = tables.sql("FROM dual_trials ORDER BY validation DESC, trial LIMIT 1").to_pylist()[0]
        texts, queries, ids = self.test_texts(tables)
        vectors = towers.encode(queries, queries=True), towers.encode(texts, queries=False)
        scores = {str(size): self.score(tables, *(_unit(part[:, :size]) for part in vectors)) for size in DIMENSIONS}
        result = {name: values.tolist() for name, values in scores.items()}
        means = {name: round(float(values.mean()), 4) for name, values in scores.items()}
        return {
            "scores": result,
            "ids": ids,
            "mean": means,
            "seconds": seconds,
            "step": best["step"],
            "rate": best["learning_rate"],
        }

    def test_texts(self, tables: Tables) -> tuple[list[str], list[str], list[str]]:
        """All texts in the order of their ids; texts and ids of the test queries in the order of their ids."""
        chunks = self.run.tables("chunks").read("chunks").sort_by("chunk_id")
        queries = tables.read("adaptation_queries").filter(self._is_unseen(tables)).sort_by("query_id")
        return view(chunks).to_pylist(), queries["text"].to_pylist(), queries["query_id"].to_pylist()

    @staticmethod
    def _is_unseen(tables: Tables) -> pa.ChunkedArray:
        unseen = tables.sql(UNSEEN_SQL)["query_id"].combine_chunks()
        return pc.is_in(tables.read("adaptation_queries")["query_id"], value_set=unseen)

    def score(self, tables: Tables, queries: Floats, texts: Floats) -> Doubles:
        """nDCG@10 of each test query, shape (n_queries,), by unit vectors in the order of `test_texts`."""
        query_ids = tables.read("adaptation_queries").filter(self._is_unseen(tables)).sort_by("query_id")["query_id"]
        text_ids = self.run.tables("chunks").read("chunks").sort_by("chunk_id")["chunk_id"]
        cosines = queries @ texts.T
        best = np.argpartition(-cosines, DEPTH, axis=1)[:, :DEPTH]
        best = np.take_along_axis(best, np.argsort(-np.take_along_axis(cosines, best, 1), axis=1, kind="stable"), 1)
        rankings = pa.table(
            {
                "query_id": query_ids.take(pa.array(np.repeat(np.arange(len(best)), DEPTH))),
                "rank": pa.array(np.tile(np.arange(1, DEPTH + 1), len(best))),
                "text_id": text_ids.take(pa.array(best.ravel())),
            }
        )
        labels = tables.read("adaptation_labels", ["query_id", "text_id", "relevance"])
        labels = labels.filter(pc.is_in(labels["query_id"], value_set=query_ids.combine_chunks()))
        return np.asarray(compute_measures([rankings], labels, query_ids.to_pylist(), [MEASURE])[:, 0])

    def baselines(self, folder: Path, cache: str) -> dict[str, dict[str, float]]:
        """nDCG@10 of each test query, by id, by the encoder as it is, and adapted."""
        saved = self.work / f"{self.name}-baselines-{key_of(self.encoder.encoder_id())[:8]}.json"
        if not saved.exists():
            trial = adapt(self.run, Run(str(folder)), cache, "linear", 0, self.encoder)
            rows = Run(str(folder)).tables("evaluation_queries").read("evaluation_queries")
            ids = sorted(pc.unique(rows["query_id"]).to_pylist())
            scores = {UNTRAINED: trial.base, ADAPTED: trial.adapted}
            by_id = {name: dict(zip(ids, values.tolist(), strict=True)) for name, values in scores.items()}
            saved.write_text(json.dumps(by_id))
        return cast(dict[str, dict[str, float]], json.loads(saved.read_text()))


def result_rows(
    benchmark: TowerBenchmark, cells: Sequence[Mapping[str, Any]], baselines: Mapping[str, Mapping[str, float]]
) -> list[list[object]]:
    """A row for each baseline and each variant with a finished cell."""
    scores = {
        variant: {str(size): [np.array(cell["scores"][str(size)]) for cell in of_variant] for size in DIMENSIONS}
        for variant in VARIANTS
        if (of_variant := [cell for cell in cells if cell["variant"] == variant])
    }
    whole = str(DIMENSIONS[-1])
    plain = np.mean(scores[PLAIN][whole], axis=0)
    rows: list[list[object]] = []
    for name, by_id in baselines.items():
        values = np.array([by_id[query] for query in cells[0]["ids"]])
        difference = _difference(values, plain)
        rows.append([benchmark.name, name, None, len(values), float(values.mean()), *difference, *[None] * 4])
    for name, by_size in scores.items():
        of_seeds = np.mean(by_size[whole], axis=0)
        of_variant = [cell for cell in cells if cell["variant"] == name]
        seconds = float(np.mean([cell["seconds"] for cell in of_variant]))
        row = [benchmark.name, name, len(of_variant), len(of_seeds), float(of_seeds.mean())]
        row += _difference(of_seeds, plain) if name != PLAIN else [None] * 3
        row += [float(np.mean(by_size[str(DIMENSIONS[0])])), benchmark.budget.steps, seconds]
        rows.append([*row, seconds / benchmark.budget.steps / len(benchmark.budget.rates)])
    return rows


def _difference(values: Doubles, reference: Doubles) -> list[float]:
    """Mean difference and its interval."""
    compared = compare_paired(values[:, None], reference[:, None], np.arange(len(values)), ResamplingSettings())
    return [float(compared.mean[0]), float(compared.low[0]), float(compared.high[0])]


def result_table(rows: Sequence[Sequence[object]], budget: Budget) -> ResultTable:
    """Variants by collection."""
    columns = {"collection": "", "training": "", "seeds": "d", "test queries": ",d", "nDCG@10": ".4f"}
    columns |= {"over plain contrast": "+.4f", "95 % from": "+.4f", "to": "+.4f", "nDCG@10, 16 dimensions": ".4f"}
    columns |= {"steps": ",d", "processor s": ",.0f", "processor s per step": ".2f"}
    rates = " or ".join(f"{rate:g}" for rate in budget.rates)
    note = (
        f"{budget.layers} layers, {TOKENS} tokens, batches of {DualSettings().batch_size}, learning rate {rates}; "
        f"128 dimensions unless stated. Seconds: training and evaluations of a seed, all learning rates together."
    )
    return ResultTable("Parts of stage 1", columns, rows, note, packages=["sentence-transformers", "torch"])


def main() -> None:
    """Train, print and save."""
    parser = options(__doc__, list(LEAST_GRADE))
    parser.set_defaults(only=list(COLLECTIONS))
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--work", type=Path, help="finished cells are kept here; default: in the folder of --cache")
    arguments = parser.parse_args()
    work = arguments.work or Path(arguments.cache) / "stage-one"
    if arguments.quick:
        arguments.only, arguments.seeds, arguments.steps, arguments.rates = ["cranfield"], 1, 4, [1e-4]
    work.mkdir(parents=True, exist_ok=True)
    budget = Budget(arguments.layers, arguments.steps, tuple(arguments.rates))
    encoder, cache = cut_encoder(work, budget.layers), EmbeddingCache(arguments.cache, "float32")
    by_collection: dict[str, tuple[TowerBenchmark, dict[str, dict[str, float]], list[dict[str, Any]]]] = {}
    for name in present(arguments.only, arguments.collections):
        collection, training = (
            arguments.collections / name,
            people_labels(arguments.collections / name, LEAST_GRADE[name]),
        )
        run = make_run(with_titles(collection, work), work / f"{name}-run", with_negatives(collection, training, cache))
        write_columns(run, "documents", {name: [] for name in DOCUMENT_COLUMNS})  # no topics
        benchmark = TowerBenchmark(name, run, encoder, budget, work)
        by_collection[name] = benchmark, benchmark.baselines(work / f"{name}-adapted", arguments.cache), []
    # Seed by seed, so that an unfinished table compares all variants.
    for seed, name, variant in product(range(arguments.seeds), by_collection, arguments.variants):
        benchmark, _, cells = by_collection[name]
        cells.append(benchmark.cell(variant, seed))
        if variant == arguments.variants[-1]:
            rows = [row for of_collection in by_collection.values() if of_collection[2] for row in _rows(of_collection)]
            publish("stage_one", [result_table(rows, budget)], quick=arguments.quick)


def _rows(parts: tuple[TowerBenchmark, dict[str, dict[str, float]], list[dict[str, Any]]]) -> list[list[object]]:
    benchmark, baselines, cells = parts
    return result_rows(benchmark, cells, baselines)


if __name__ == "__main__":
    main()
