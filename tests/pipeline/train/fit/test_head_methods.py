"""Heads as methods: what is handed over alone is the head that was chosen."""

import json

import numpy as np
import torch
from safetensors.numpy import load
from torch.nn import functional

from darklode.pipeline.train.data.dataset import QuerySet
from darklode.pipeline.train.fit.head_methods import HeadMethod
from darklode.schemas.adaptation import AdaptSettings

from ..conftest import Adapted


def test_the_head_alone_gives_its_vectors_at_the_chosen_share(adapted: Adapted) -> None:
    method, draws = HeadMethod(AdaptSettings(), adapted.base), np.random.default_rng(2)
    weights = {"0.weight": draws.random((8, 8), np.float32), "0.bias": draws.random(8, np.float32)}
    asked = QuerySet.from_texts(["how badu", "how befi"], adapted.base)
    whole, half = (method.vectors(weights, share, asked) for share in (1.0, 0.5))
    assert np.abs(whole - half).max() > 1e-3
    np.testing.assert_allclose(method.vectors(weights, 0.0, asked), asked.vectors, atol=1e-6)
    files = method.export_tensors(weights, 0.5)
    tensors = load(files["adapter.safetensors"])
    plain = asked.vectors @ tensors["0.weight"].T + tensors["0.bias"]
    np.testing.assert_allclose(functional.normalize(torch.from_numpy(plain), dim=1).numpy(), half, atol=1e-6)
    header = files["adapter.safetensors"]
    about = json.loads(json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")])["__metadata__"]["darklode"])
    assert about["base"] == adapted.base.identity["encoder"]
