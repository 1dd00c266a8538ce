"""What the presets of engines share: their settings are data, and a name of its own is needed."""

import pickle

import pytest

from darklode.flows.factories import retriever
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.retrieve.retrievers.engine_kind import EngineKind
from darklode.pipeline.retrieve.retrievers.live import LiveBuilder
from darklode.schemas.pooling import RETRIEVERS
from darklode.schemas.settings import Settings

ENGINES = ["elasticsearch", "http", "opensearch", "qdrant", "solr", "vespa"]
REQUEST = {"q": "{query}", "k": "{k}", "tenant": "{tenant}"}


def test_all_engines_have_the_same_settings() -> None:
    kinds = {name: RETRIEVERS.load(name) for name in ENGINES}
    assert all(issubclass(kind, EngineKind) for kind in kinds.values())
    assert {frozenset(kind.model_fields) for kind in kinds.values()} == {frozenset(EngineKind.model_fields)}
    assert all(
        field.description for kind in kinds.values() for name, field in kind.model_fields.items() if name != "kind"
    )


@pytest.mark.parametrize("name", ENGINES)
def test_the_name_of_a_kind_is_no_retriever(name: str) -> None:
    with pytest.raises(SettingsError, match=f"the retriever {name} has no default for base_url, request"):
        retriever(name, "pool.retrievers", Settings())


def test_a_named_engine_travels_to_another_machine() -> None:
    keys = {"kind": "opensearch", "base_url": "http://host:9200", "index": "shop", "request": REQUEST}
    settings = Settings.model_validate({"retrievers": {"engine": keys}, "cache": {"root": "/tmp/cache"}})
    builder = retriever("engine", "pool.retrievers", settings)
    assert isinstance(builder, LiveBuilder)
    assert (builder.name, builder.cache.root) == ("engine", "/tmp/cache")
    assert builder.engine.uses_tenant
    assert pickle.loads(pickle.dumps(builder)).identity == builder.identity
