from types import SimpleNamespace
from typing import Any

import pytest

from darklode.flows.vector_source import tenant_to_search
from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit
from darklode.pipeline.train.release.adapter import Adapter


def source(*tenants: str) -> Any:
    return SimpleNamespace(tenants=lambda: list(tenants), run=SimpleNamespace(store=SimpleNamespace(url="run")))


ACME = Adapter(Store("adapter"), {"tenant": "acme", "shared_with": ["birch"]})


def test_the_tenant_is_given_the_adapters_or_the_only_one() -> None:
    assert tenant_to_search(source("acme"), None, []) == "acme"
    assert tenant_to_search(source("acme", "birch"), None, [ACME]) == "acme"
    assert tenant_to_search(source("acme", "birch"), "birch", [ACME]) == "birch"
    with pytest.raises(ArtifactError, match="choose one with --tenant"):
        tenant_to_search(source("acme", "birch"), None, [])
    with pytest.raises(ArtifactError, match="has no tenant cedar; choose from acme"):
        tenant_to_search(source("acme"), "cedar", [])
    with pytest.raises(DoesNotFit, match="is for tenant acme, birch, not for cedar"):
        tenant_to_search(source("acme"), "cedar", [ACME])
    with pytest.raises(DoesNotFit, match="run has no such tenant"):
        tenant_to_search(source("cedar"), None, [ACME])
