"""Export of a released reranker as one ONNX graph from token ids to the score, with its tokenizer."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from darklode.pipeline.base.errors import ArtifactError, DarklodeError
from darklode.pipeline.base.models.local import RERANKER_FOLDER, RERANKER_RECORD
from darklode.pipeline.train.release.onnx_export import (
    GRAPH_FILE,
    MAX_DIFFERENCE,
    RECORD_FILE,
    TOKENIZER_FILE,
    export_graph,
    export_tokenizer,
    require_onnx,
    run_graph,
    save_export,
)

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Run

SCORE_OUTPUT = "score"

PROBE_PAIRS_SQL = """
    SELECT a.text AS query, b.text FROM adaptation_queries a, adaptation_queries b
    WHERE a.query_id < b.query_id ORDER BY a.query_id, b.query_id LIMIT 8
"""
"""Pairs of queries that the graph is compared on, and one that exceeds the maximum length."""

PAIR_USAGE = """\
from tokenizers import Tokenizer; from onnxruntime import InferenceSession
Encode pairs (query, text) by tokenizer.json, and give the graph its `inputs` as int64; the score is a logit."""


def is_reranker(run: Run) -> bool:
    """Whether a folder was made by `train-reranker`."""
    return run.store.size(RERANKER_RECORD) is not None


def export_reranker(run: Run) -> float:
    """Write `onnx/` beside `reranker/`, in float32; returns the maximum absolute difference of a score.

    Raises:
        ArtifactError: no reranker was released.
        MissingPart: onnx or onnxruntime is not installed.
        DarklodeError: the graph gives other scores, or the tokenizer cannot be exported.
    """
    from sentence_transformers import CrossEncoder
    from torch.nn import Identity

    require_onnx()
    record = run.store.read_object(RERANKER_RECORD)
    if record.get("weights") is None:
        raise ArtifactError(f"{run.store.url} holds no released reranker: {record.get('reason', 'it is unfinished')}")
    rows = run.tables().sql(PROBE_PAIRS_SQL).to_pylist()
    pairs = [(row["query"], row["text"]) for row in rows]
    pairs.append((pairs[0][0], " ".join(text for _, text in pairs) * 50))
    with tempfile.TemporaryDirectory(prefix="darklode-onnx-") as scratch:
        model_folder, folder = Path(scratch, RERANKER_FOLDER), Path(scratch, "onnx")
        for path in (model_folder, folder):
            path.mkdir()
        for name in run.store.sizes(RERANKER_FOLDER, recursive=True):
            path = Path(scratch, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(run.store.read(name) or b"")
        model = CrossEncoder(str(model_folder), device="cpu")
        expected = model.predict(pairs, activation_fn=Identity(), show_progress_bar=False)
        export_tokenizer(model.tokenizer, model.max_seq_length).save(str(folder / TOKENIZER_FILE))
        features = model.tokenizer(pairs, padding=True, truncation=True, return_tensors="pt")
        inputs = export_graph(model.model.eval(), _score, features, folder / GRAPH_FILE, SCORE_OUTPUT)
        about = {"inputs": inputs, "output": SCORE_OUTPUT, "how": PAIR_USAGE}
        (folder / RECORD_FILE).write_text(json.dumps(about))
        difference = float(np.abs(run_graph(folder, pairs) - expected).max())
        if difference > MAX_DIFFERENCE:
            raise DarklodeError(
                f"the ONNX graph gives other scores than the model (by {difference:.1e}), so it is not exported"
            )
        save_export(run.store, folder, about | {"difference": difference, "reranker": record["id"]})
    return difference


def _score(model: Any, features: dict[str, Any]) -> Any:
    return model(**features).logits.view(-1)
