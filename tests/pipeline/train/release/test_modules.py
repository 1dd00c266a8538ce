"""Modules of saved encoders."""

import numpy as np
import pytest

from darklode.pipeline.train.release.modules import dense_module, modules

torch = pytest.importorskip("torch")


def test_a_linear_layer_reads_and_writes_the_named_features() -> None:
    weight, bias = np.array([[1, 2], [0, -3]], np.float32), np.array([0.5, 1], np.float32)
    features = {"given": torch.tensor([[1.0, 1.0]]), "sentence_embedding": torch.tensor([[1.0, 0.0]])}
    dense_module(weight, bias, source="given", target="made")(features)
    assert features["made"].tolist() == [[3.5, -2.0]]
    dense_module(weight, None, gelu=True)(features)
    expected = torch.nn.functional.gelu(torch.tensor([[1.0, 0.0]]))
    assert torch.allclose(features["sentence_embedding"], expected)


def test_the_modules_are_those_of_the_installed_version() -> None:
    assert {"Dense", "Normalize", "Pooling", "WordEmbeddings"} <= {*dir(modules())}
