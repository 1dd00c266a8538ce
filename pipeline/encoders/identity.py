"""How an encoder's id is put together."""

from __future__ import annotations

import json
from hashlib import sha256


def identity(kind: str, model: str, **facts: object) -> str:
    """`kind:model:fact=value:…`, in the order given.

    Prompts and parameters may be long: give their `short_hash`, not themselves.
    """
    return ":".join([kind, model, *(f"{name}={value}" for name, value in facts.items())])


def short_hash(*values: object) -> str:
    """Eight hexadecimal digits that change when a value does; `none` where all are empty."""
    if not any(values):
        return "none"
    return sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]
