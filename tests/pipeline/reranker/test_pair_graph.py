"""The ONNX graph of a reranker: onnxruntime and tokenizers alone give the model's scores."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.reranker.pair_graph import export_reranker, is_reranker
from darklode.pipeline.train.release.onnx_export import MAX_DIFFERENCE, run_graph
from helpers.reranked import RerankedRun

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def test_the_graph_scores_as_the_model_also_beyond_its_length(reranked: RerankedRun, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder
    from torch.nn import Identity

    out = Run(str(shutil.copytree(reranked.root / "out", tmp_path / "out")))
    assert is_reranker(out)
    assert export_reranker(out) <= MAX_DIFFERENCE
    pairs = [("how bado", "goda mula"), ("how", "bado " * 100)]
    model = CrossEncoder(str(tmp_path / "out" / "reranker"), device="cpu")
    expected = model.predict(pairs, activation_fn=Identity(), show_progress_bar=False)
    np.testing.assert_allclose(run_graph(tmp_path / "out" / "onnx", pairs), expected, atol=1e-5)
    about = json.loads(out.store.read("onnx/about.json") or b"")
    assert about["reranker"] == out.store.read_object("reranker.json")["id"]


def test_without_a_release_there_is_nothing_to_export(tmp_path: Path) -> None:
    run = Run(str(tmp_path))
    assert not is_reranker(run)
    run.store.write("reranker.json", json.dumps({"weights": None, "reason": "no gain"}).encode())
    with pytest.raises(ArtifactError, match="holds no released reranker: no gain"):
        export_reranker(run)
