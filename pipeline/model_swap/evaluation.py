"""The stage `swap_test`: what mapped queries find, compared with re-embedding everything and with no change."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.finite import finite_or_none
from darklode.pipeline.base.types import Doubles, Floats, Ints
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.model_swap.encoder_pair import EncoderPair, held_out_queries, load_vectors
from darklode.pipeline.model_swap.maps import random_orthogonal, zero_padding
from darklode.pipeline.model_swap.partial import fit_line, partial_recalls
from darklode.pipeline.model_swap.recall import CUTOFFS, MeanShare, mean_share, share_found
from darklode.pipeline.model_swap.vectors import PairedVectors, SwapVectors, search
from darklode.pipeline.train.types import Layers
from darklode.schemas.model_swap_tables import SWAP_AGREEMENT, SWAP_PARTIAL, SWAP_QUALITY

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Rows

READS = (
    "swap_texts",
    "swap_trials",
    "adapter_weights",
    "tower_queries",
    "adaptation_texts",
    "adaptation_queries",
    "adaptation_labels",
)
SWAP_TEST_STAGE = Stage("swap_test", 1, READS, (SWAP_AGREEMENT.name, SWAP_QUALITY.name, SWAP_PARTIAL.name))

MEASURES = ("nDCG@10", "R@10", "R@100")
RE_EMBEDDING, INDEX_ENCODER, MAPPED = "re-embedding", "index encoder", "mapped"
REFERENCES = (RE_EMBEDDING, INDEX_ENCODER)

N_TIMED_DOCUMENTS = 64
N_TIMED_QUERIES = 256

# Labels of the sampled texts; copies of a text count once, with the highest grade.
LABELS_SQL = """
    SELECT l.query_id, s.text_id, max(l.relevance) AS relevance
    FROM adaptation_labels l JOIN adaptation_texts t USING (tenant, text_id)
    JOIN swap_texts s ON s.content_hash = t.content_hash
    SEMI JOIN (FROM adaptation_queries WHERE split = 'test') q ON q.query_id = l.query_id
    GROUP BY l.query_id, s.text_id ORDER BY ALL
"""
LABELLED_QUERIES_SQL = """
    SELECT query_id, text, "group" FROM adaptation_queries
    WHERE query_id IN (SELECT query_id FROM labels WHERE relevance > 0) ORDER BY query_id
"""


def measure_maps(tables: Tables, output: Output, pair: EncoderPair, *, seed: int) -> None:
    """Measure the best map of each method, baselines, labelled quality, partial re-embedding and costs.

    Args:
        tables: see `READS`.
        output: receives `swap_agreement`, `swap_quality` and `swap_partial`; its facts are the costs.
        pair: the encoders.
        seed: seed of resamples and random baselines.
    """
    from darklode.pipeline.model_swap.stage import load_maps, selected_method

    vectors, maps = load_vectors(tables, pair), load_maps(tables)
    held_out, selected = pair.queries(held_out_queries(tables)), maps[selected_method(tables)]
    systems = {MAPPED: selected, **maps, **baselines(vectors, seed)}
    output.write(SWAP_AGREEMENT.name, agreement(systems, held_out, vectors.documents, seed))
    output.write(SWAP_QUALITY.name, _quality(tables, pair, vectors.documents, selected, seed))
    heat = tables.read("swap_texts", ["heat"])["heat"].to_numpy()
    output.write(SWAP_PARTIAL.name, _partial(selected, held_out, vectors, heat, seed))
    output.facts |= _costs(tables, pair, vectors.validation, selected)
    output.count(FunnelStep(SWAP_TEST_STAGE.name, "held-out queries", len(held_out), "queries", len(held_out)))


def baselines(vectors: SwapVectors, seed: int) -> dict[str, Layers]:
    """Maps that learn nothing, by name; without a map only if the dimensions are the same."""
    dimensions = vectors.documents.new.shape[1], vectors.documents.old.shape[1]
    unmapped = {"no map": zero_padding(*dimensions)} if dimensions[0] == dimensions[1] else {}
    return unmapped | {"random orthogonal": random_orthogonal(*dimensions, seed)}


def agreement(systems: Mapping[str, Layers], queries: PairedVectors, documents: PairedVectors, seed: int) -> pa.Table:
    """Rows of `swap_agreement`: each system, and the index encoder itself, against both references.

    Args:
        systems: maps by name.
        queries: held-out queries.
        documents: the searched texts.
        seed: seed of the resamples.
    """
    from darklode.pipeline.train.fit.heads import apply_layers

    depth = max(CUTOFFS)
    references = {
        RE_EMBEDDING: search(queries.new, documents.new, depth),
        INDEX_ENCODER: search(queries.old, documents.old, depth),
    }
    results = {
        name: search(apply_layers(layers, queries.new), documents.old, depth) for name, layers in systems.items()
    }
    results[INDEX_ENCODER] = references[INDEX_ENCODER]
    rows: Rows = []
    for name, result in results.items():
        for reference in REFERENCES:
            for k in CUTOFFS:
                share = mean_share(share_found(result, references[reference], k), seed)
                if name != reference and share.queries:
                    rows.append({"system": name, "reference": reference, "k": k, **_columns(share)})
    return pa.Table.from_pylist(rows, schema=SWAP_AGREEMENT.schema)


def _columns(share: MeanShare) -> dict[str, Any]:
    values = {name: finite_or_none(getattr(share, name)) for name in ("value", "low", "high", "bounded_low")}
    return values | {"queries": share.queries}


def _quality(tables: Tables, pair: EncoderPair, documents: PairedVectors, selected: Layers, seed: int) -> pa.Table:
    """Rows of `swap_quality`; all systems search the sampled texts."""
    from darklode.pipeline.train.fit.heads import apply_layers

    with tables.connect(LABELS_SQL) as connection:
        labels = connection.sql(LABELS_SQL).to_arrow_table()
        connection.register("labels", labels)
        labelled = connection.sql(LABELLED_QUERIES_SQL).to_arrow_table()
    if not labelled.num_rows:
        return SWAP_QUALITY.empty()
    ids, queries = labelled["query_id"].to_pylist(), pair.queries(labelled["text"].to_pylist())
    names = tables.read("swap_texts", ["text_id"])["text_id"].combine_chunks()
    depth = max(CUTOFFS)
    lists = {
        INDEX_ENCODER: search(queries.old, documents.old, depth),
        RE_EMBEDDING: search(queries.new, documents.new, depth),
        MAPPED: search(apply_layers(selected, queries.new), documents.old, depth),
    }
    values = {
        name: compute_measures([_rankings(ids, result, names)], labels, ids, MEASURES) for name, result in lists.items()
    }
    groups = labelled["group"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    rows: Rows = []
    for name, system_values in values.items():
        difference = compare_paired(system_values, values[INDEX_ENCODER], groups, ResamplingSettings(seed=seed))
        for at, measure in enumerate(MEASURES):
            row = {name: value for name, value in difference.row(at).items() if name in SWAP_QUALITY.schema.names}
            row |= {"system": name, "measure": measure, "queries": len(ids)}
            rows.append(row | {"value": float(system_values[:, at].mean())})
    return pa.Table.from_pylist(rows, schema=SWAP_QUALITY.schema)


def _rankings(ids: list[str], results: Ints, names: pa.StringArray) -> pa.Table:
    query, rank = np.nonzero(results >= 0)
    return pa.table(
        {
            "query_id": pa.array(ids).take(pa.array(query)),
            "rank": pa.array(rank + 1),
            "text_id": names.take(pa.array(results[query, rank])),
        }
    )


def _partial(selected: Layers, held_out: PairedVectors, vectors: SwapVectors, heat: Floats, seed: int) -> pa.Table:
    """Rows of `swap_partial`: texts in the order of their heat, and at random."""
    from darklode.pipeline.train.fit.heads import apply_layers

    if not held_out.new.any():
        return SWAP_PARTIAL.empty()
    documents = vectors.documents
    line = fit_line(apply_layers(selected, vectors.train.new), vectors.train.new, documents)
    orders: dict[str, Doubles] = {
        "hottest": heat.astype(np.float64),
        "random": np.random.default_rng(seed).random(len(heat)),
    }
    mapped = apply_layers(selected, held_out.new)
    rows = [
        {"order": name, **asdict(recall)}
        for name, order in orders.items()
        for recall in partial_recalls(mapped, held_out.new, documents, order, line)
    ]
    return pa.Table.from_pylist(rows, schema=SWAP_PARTIAL.schema)


def _costs(tables: Tables, pair: EncoderPair, queries: PairedVectors, selected: Layers) -> dict[str, Any]:
    """Documents per second of the new encoder on this machine, and µs per query of the map on one thread."""
    from darklode.pipeline.model_swap.encoder_pair import tenant_of
    from darklode.pipeline.train.fit.determinism import deterministic

    ids = tables.read("swap_texts", ["text_id"])["text_id"][:N_TIMED_DOCUMENTS].to_pylist()
    texts = view(pair.old.sources[0].passage_rows(tenant_of(tables), ids)).to_pylist()
    model = pair.new.model
    model.encode_documents(texts[:1])  # loads the model
    began = time.perf_counter()
    model.encode_documents(texts)
    per_second = len(texts) / (time.perf_counter() - began)
    with deterministic(0):
        return {
            "documents per second": round(per_second, 1),
            "µs per query": round(map_microseconds(selected, queries.new), 2),
        }


def map_microseconds(layers: Layers, queries: Floats) -> float:
    """µs per query of applying a map to one query at a time; the median of some."""
    from darklode.pipeline.train.fit.heads import apply_layers

    seconds = []
    for row in range(min(N_TIMED_QUERIES, len(queries))):
        began = time.perf_counter()
        apply_layers(layers, queries[row : row + 1])
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds) * 1e6) if seconds else 0.0
