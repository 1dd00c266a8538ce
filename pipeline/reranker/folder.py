"""The released folder: `reranker/`, which plain sentence-transformers loads as a `CrossEncoder`, and its record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables, key_of
from darklode.pipeline.base.models.local import RERANKER_FOLDER, RERANKER_RECORD
from darklode.pipeline.reranker.candidates import CANDIDATES_STAGE, load_lists
from darklode.pipeline.reranker.evaluation import RERANKER_TEST_STAGE
from darklode.pipeline.reranker.stage import READS, RERANKER_STAGE, load_best_reranker
from darklode.pipeline.reranker.verdict import RERANKER_VERDICT_STAGE, SHIPPED, read_reranker_verdict
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.release.adapter import weights_hash
from darklode.pipeline.train.release.folder import is_up_to_date, save_folder
from darklode.pipeline.train.release.identity import DATA_TABLES, fingerprint
from darklode.pipeline.train.release.onnx_export import ONNX_FOLDER

if TYPE_CHECKING:
    from darklode.pipeline.reranker.lists import CandidateLists
    from darklode.pipeline.reranker.model import InitialReranker
    from darklode.pipeline.train.data.base_encoder import BaseEncoder

N_PROBE_QUERIES = 2
"""Queries whose candidates verify that the saved folder reproduces the scores of training."""

SCORE_COLUMNS = ("part", "queries", "other", "difference", "low", "high", "validation_queries")

RECORDS = tuple(f"{RERANKER_FOLDER}/{name}" for name in (RERANKER_RECORD, "darklode.json"))
"""Files of the folder that do not belong to the model."""

PROBE_QUERIES_SQL = """
    SELECT query_id, text FROM adaptation_queries SEMI JOIN rerank_candidates USING (tenant, query_id)
    ORDER BY query_id LIMIT $1
"""


def save_reranker(run: Run, base: BaseEncoder, initial: InitialReranker) -> None:
    """Write `reranker/` and `reranker.json` unless they are up to date; without a release the record alone.

    Args:
        run: a run with complete stages.
        base: the encoder that found the candidates, with the runs.
        initial: the model that training started from.

    Raises:
        DarklodeError: the saved folder does not reproduce the scores of training.
    """
    tables = run.tables()
    verdict = read_reranker_verdict(tables)
    if verdict["shipped"] != SHIPPED:
        for folder in (RERANKER_FOLDER, ONNX_FOLDER):
            run.store.delete_folder(folder)
    else:
        manifests = [run.manifest(stage) for stage in (RERANKER_STAGE, RERANKER_VERDICT_STAGE)]
        mark = key_of([manifest.fingerprint for manifest in manifests if manifest], initial.identity)
        if not is_up_to_date(run.store, mark, RERANKER_FOLDER):
            _save_model(run, tables, base, initial, mark)
    facts = json.dumps(_facts(run, tables, verdict, base, initial), indent=1, ensure_ascii=False).encode()
    if verdict["shipped"] == SHIPPED:  # the copy in the folder names its tenant wherever it is copied to
        run.store.write_changed(f"{RERANKER_FOLDER}/{RERANKER_RECORD}", facts)
    run.store.write_changed(RERANKER_RECORD, facts)


def _save_model(run: Run, tables: Tables, base: BaseEncoder, initial: InitialReranker, mark: str) -> None:
    lists = probe_lists(tables, base)
    queries, texts = lists.pairs()
    with deterministic(0):
        reranker = load_best_reranker(tables, initial)
        expected = reranker.scores(queries, texts)

        def check(saved: Any) -> Any:
            from torch.nn import Identity

            pairs = list(zip(queries, texts, strict=True))
            return np.abs(saved.predict(pairs, activation_fn=Identity(), show_progress_bar=False) - expected)

        save_folder(run.store, mark, reranker.loaded.to("cpu"), check, {}, RERANKER_FOLDER, model_class="CrossEncoder")


def probe_lists(tables: Tables, base: BaseEncoder) -> CandidateLists:
    """Candidates of a few queries."""
    queries = tables.sql(PROBE_QUERIES_SQL, [N_PROBE_QUERIES])
    no_labels = pa.table({name: pa.array([], pa.string()) for name in ("query_id", "text_id", "relevance")})
    return load_lists(tables, base.sources, queries, no_labels)


def _facts(
    run: Run, tables: Tables, verdict: dict[str, Any], base: BaseEncoder, initial: InitialReranker
) -> dict[str, Any]:
    """What `reranker.json` says: fingerprint, tenant, result, weight and candidates."""
    is_released = verdict["shipped"] == SHIPPED
    manifest = run.manifest(CANDIDATES_STAGE)
    tested = run.manifest(RERANKER_TEST_STAGE)
    assert manifest is not None
    assert tested is not None
    weights = weights_hash(run.store, RERANKER_FOLDER, RECORDS) if is_released else None
    data = fingerprint(tables, (*DATA_TABLES, *READS[3:]))
    return {
        "id": key_of(verdict["tenant"], weights, data, initial.identity),
        "tenant": verdict["tenant"],
        "shipped": verdict["shipped"],
        "reason": verdict["reason"],
        "weight": verdict["weight"],
        "scores": {name: verdict[name] for name in SCORE_COLUMNS},
        "base": initial.identity,
        "candidates": {
            "encoder": base.identity["encoder"],
            "weight": manifest.facts["encoder weight"],
            "depth": manifest.facts["candidates"],
            "milliseconds": tested.facts["milliseconds"],
        },
        "weights": weights,
        "data": data,
    }
