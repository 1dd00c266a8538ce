"""Term vectors in a saved folder: plain sentence-transformers gives the vectors of training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.models.loading import load_query_tower
from darklode.pipeline.base.models.precision import rounding
from darklode.pipeline.base.types import Floats
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.encoders.sentence_transformers import SentenceTransformersEncoder
from darklode.pipeline.train.data.dataset import QuerySet
from darklode.pipeline.train.data.term_vectors import QueryTokenizer, TermTable, fit_term_vectors
from darklode.pipeline.train.fit.heads import Head, dense
from darklode.pipeline.train.fit.term_start import TermStart
from darklode.pipeline.train.release.folder import assemble_model
from darklode.pipeline.train.release.term_modules import term_bytes, term_modules
from helpers.adapted import model_in

sentence_transformers = pytest.importorskip("sentence_transformers")

TEXTS = [f"{first} {second}" for first in ("badu", "befi", "kuma", "zo") for second in ("fegi", "zuza", "lopa")]
QUERIES = ["badu zuza", "befi", "badu badu badu", "never #&! seen", "ask lopa " + "kuma " * 60]


class Queries:
    """Base vectors of queries."""

    def __init__(self, encoder: SentenceTransformersEncoder) -> None:
        self._encoder = encoder

    def queries(self, texts: list[str]) -> Floats:
        return self._encoder.encode_queries(texts)


def mixed(settings: SentenceTransformersSettings, d: int = 8) -> tuple[TermStart, TermTable, QuerySet]:
    """A start drawn at random, term vectors of `TEXTS`, and `QUERIES`."""
    encoder, draws = SentenceTransformersEncoder(settings), np.random.default_rng(0)
    tokenizer = QueryTokenizer.open(settings)
    assert tokenizer is not None
    terms = fit_term_vectors(tokenizer.documents(TEXTS), encoder.encode_documents(TEXTS), tokenizer.ignored_tokens)
    weight, mix = draws.normal(size=(2, d, d)).astype(np.float32)
    start = TermStart(0.5, 0.25, weight, draws.normal(size=d).astype(np.float32), mix)
    queries = QuerySet.from_texts(QUERIES, Queries(encoder))
    return start, terms, replace(queries, terms=terms.of_queries(tokenizer.queries(QUERIES)))


@pytest.mark.parametrize(
    "changed", [{}, {"max_seq_length": 16}, {"query_prompt": ""}, {"truncate_dim": 4}, {"dtype": "bfloat16"}]
)
def test_a_saved_folder_gives_the_vectors_of_training(tmp_path: Path, changed: dict[str, Any]) -> None:
    settings = model_in(tmp_path).model_copy(update=changed)
    start, terms, queries = mixed(settings, settings.truncate_dim or 8)
    draws, head = np.random.default_rng(1), Head(len(start.bias), 1)
    head = Head.from_layers(
        [(weight + draws.normal(size=weight.shape).astype(np.float32), bias + 0.1) for weight, bias in head.weights()]
    )
    loaded = load_query_tower(settings, "cpu")
    model = assemble_model(loaded, settings, dense(head.weights()), term_modules(start, terms, loaded))
    model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    plain = sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    expected = head.apply_to(start.apply(queries))
    np.testing.assert_allclose(plain.encode(QUERIES), expected, atol=max(1e-5, rounding(settings.dtype)))
    assert np.abs(expected - head.apply_to(queries.vectors)).max() > 0.1, "the terms have an effect"
    listed = json.loads((tmp_path / "saved" / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in listed), "no code of Darklode"


def test_the_file_of_the_terms_alone_is_complete(tmp_path: Path) -> None:
    start, terms, queries = mixed(model_in(tmp_path))
    tensors = load(term_bytes(start, terms))
    again = TermTable(tensors["tokens"].astype(np.int64), tensors["vectors"])
    mix = TermStart.from_weights(tensors)
    assert mix is not None
    assert (mix.share, mix.power) == (0.5, 0.25)
    tokenizer = QueryTokenizer.open(model_in(tmp_path))
    assert tokenizer is not None
    from_file = replace(queries, terms=again.of_queries(tokenizer.queries(QUERIES)))
    np.testing.assert_allclose(mix.apply(from_file), start.apply(queries), atol=1e-5)


def test_tokens_of_another_model_are_refused(tmp_path: Path) -> None:
    settings = model_in(tmp_path)
    start, terms, _ = mixed(settings)
    other = TermTable(terms.tokens + 1000, terms.vectors)
    with pytest.raises(DarklodeError, match="not in the model's vocabulary"):
        term_modules(start, other, load_query_tower(settings, "cpu"))
