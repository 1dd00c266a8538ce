"""Requests as JSON templates, and paths to values in JSON replies.

A template is parsed before anything is inserted, and placeholders are replaced in its strings only: no query text can
change the structure of a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

_PLACEHOLDER = re.compile(r"\{(query|k|tenant)\}")


def placeholders(template: JsonValue) -> set[str]:
    """Names of the placeholders in a template's strings."""
    if isinstance(template, str):
        return set(_PLACEHOLDER.findall(template))
    items = template.values() if isinstance(template, dict) else template if isinstance(template, list) else ()
    return {name for item in items for name in placeholders(item)}


def fill(template: JsonValue, values: Mapping[str, str | int]) -> JsonValue:
    """Replace the placeholders in a template's strings; keys are left as they are.

    A string that is a placeholder and nothing else becomes the value with its type: `"{k}"` becomes a number.

    Args:
        template: parsed JSON.
        values: value by name of placeholder; a value that looks like a placeholder is not replaced again.
    """
    if isinstance(template, dict):
        return {key: fill(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [fill(item, values) for item in template]
    if not isinstance(template, str):
        return template
    if placeholder := _PLACEHOLDER.fullmatch(template):
        return values[placeholder[1]]
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), template)


def value_at(value: Any, path: str) -> Any:
    """The value at a path of keys and list indices, such as `hits.hits`; None if there is none.

    A key that contains dots is found as well, as in `_source.meta.id` of `{"_source": {"meta.id": 7}}`.
    """
    if not path:
        return value
    if isinstance(value, list):
        head, _, remainder = path.partition(".")
        return value_at(value[int(head)], remainder) if head.isdigit() and int(head) < len(value) else None
    if not isinstance(value, dict):
        return None
    parts = path.split(".")
    for n_parts in range(1, len(parts) + 1):
        key = ".".join(parts[:n_parts])
        if key in value and (leaf := value_at(value[key], ".".join(parts[n_parts:]))) is not None:
            return leaf
    return None
