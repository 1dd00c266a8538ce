"""Warm start: initialize training with the previously released head."""

from __future__ import annotations

from darklode.pipeline.base.errors import DoesNotFit, SettingsError
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.base_encoder import InitialHead
from darklode.pipeline.train.release.adapter import MAPPED, Adapter
from darklode.pipeline.train.release.identity import identity

METHODS = ("linear", "ffn")
COMPARED_FACTS = ("encoder", "weights", "pooling", "query prompt", "tokens", "cut")


def require_head_method(method: str) -> None:
    """Check that a method can be warm-started.

    Raises:
        SettingsError: it cannot.
    """
    if method not in METHODS:
        raise SettingsError(
            f"adapt.method {method} always starts from the base; --warm-start supports {' and '.join(METHODS)}"
        )


def load_initial_head(adapter: Adapter, tenant: str, encoder: SentenceTransformersSettings, method: str) -> InitialHead:
    """Initialize from an adapter.

    Args:
        adapter: of the same tenant, base and method.
        tenant: the tenant to train for.
        encoder: the base.
        method: the method to train.

    Raises:
        SettingsError: the method cannot start from a head, the adapter's method differs, or it is a model swap.
        DoesNotFit: it belongs to another tenant or base.
    """
    from darklode.pipeline.train.fit.heads import N_LAYERS, add_residual
    from darklode.pipeline.train.release.term_modules import read_terms

    require_head_method(method)
    if adapter.tenant != tenant:
        raise DoesNotFit(f"{adapter.store.url} belongs to the tenant {adapter.tenant}, not to {tenant}")
    base_identity, adapter_identity = identity(encoder), adapter.facts["base"]
    other = [name for name in COMPARED_FACTS if base_identity[name] != adapter_identity[name]]
    if other:
        raise DoesNotFit(
            f"{adapter.store.url} has another base: {other[0]} is {adapter_identity[other[0]]}, "
            f"not {base_identity[other[0]]}"
        )
    if adapter.facts["shipped"] == MAPPED:
        raise SettingsError(
            f"{adapter.store.url} maps the vectors of another encoder onto the base, so no head can start from it"
        )
    layers = adapter.layers if adapter.ships else []
    if adapter.ships and len(layers) != N_LAYERS[method]:
        raise SettingsError(
            f"{adapter.store.url} is not a {method} head, so {method} cannot start from it; leave out --warm-start"
        )
    learned = adapter.facts.get("learned", [])
    if adapter.ships and read_terms(adapter.store) is not None:
        raise SettingsError(
            f"{adapter.store.url} has term vectors, and no head can start from it; train it anew without a warm start"
        )
    start = add_residual(layers) if layers else None
    return InitialHead(adapter.store.url, adapter.facts["weights"], start, learned)
