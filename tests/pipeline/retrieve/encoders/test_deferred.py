"""Encoders that are loaded when they first have work, one at a time in a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.encoders.caching import ensure_cached
from darklode.pipeline.retrieve.encoders.deferred import Deferred, release
from darklode.pipeline.retrieve.encoders.kinds.openai import OpenAISettings
from helpers.hash_encoder import HashEncoder


class Loaded(HashEncoder):
    """What loading settings gives here."""

    def __init__(self, settings: OpenAISettings) -> None:
        super().__init__(encoder_id=settings.encoder_id())
        self.cost = 1.5


@pytest.fixture(autouse=True)
def loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str | None]]]:
    """The models that were loaded, each with the root that it was given."""
    found: list[tuple[str, str | None]] = []

    def load(self: OpenAISettings, root: str | None = None) -> Loaded:
        found.append((self.model, root))
        return Loaded(self)

    monkeypatch.setattr(OpenAISettings, "load", load)
    release()
    yield found
    release()


def deferred(name: str, root: str | None = None) -> Deferred:
    return Deferred(OpenAISettings(model=name), root)


Loads = list[tuple[str, str | None]]


def test_the_id_is_known_without_loading(loads: Loads) -> None:
    assert deferred("one").encoder_id == OpenAISettings(model="one").encoder_id()
    assert loads == []


def test_whatever_is_asked_of_it_loads_it_once(loads: Loads) -> None:
    one, same = deferred("one", "root"), deferred("one", "root")
    expected = Loaded(OpenAISettings(model="one"))
    np.testing.assert_array_equal(one.encode_queries(["red"]), expected.encode_queries(["red"]))
    np.testing.assert_array_equal(same.encode_documents(["red"]), expected.encode_documents(["red"]))
    assert (same.dimensions, one.cost) == (16, 1.5)
    places, vectors = next(one.encode_batches(["red", "blue"]))
    assert (places.tolist(), vectors.shape) == ([0, 1], (2, 16))
    assert loads == [("one", "root")]


def test_a_process_holds_one_at_a_time(loads: Loads) -> None:
    one, two = deferred("one"), deferred("two")
    for encoder in (one, two, two, one):
        encoder.encode_queries(["red"])
    assert [name for name, _ in loads] == ["one", "two", "one"]
    release()
    one.encode_queries(["red"])
    assert len(loads) == 4


def test_the_same_model_with_its_spending_kept_elsewhere_is_another(loads: Loads) -> None:
    deferred("one", "here").encode_queries(["red"])
    deferred("one", "there").encode_queries(["red"])
    assert loads == [("one", "here"), ("one", "there")]


def test_a_full_cache_loads_no_encoder(loads: Loads, tmp_path: Path) -> None:
    cache = EmbeddingCache(str(tmp_path), "float32")
    texts = [("0" * 31 + str(number), f"text {number}") for number in range(9)]
    batch = pa.array([hash_ for hash_, _ in texts]), pa.array([text for _, text in texts])
    assert ensure_cached(deferred("one"), cache, [batch]).encoded == 9
    release()
    assert ensure_cached(deferred("one"), cache, [batch]).encoded == 0
    assert len(loads) == 1
