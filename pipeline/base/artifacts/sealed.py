"""Small JSON files that tell when a byte of them changed: their last key is the sha256 of all that stands before it."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

KEY = "sha256"
_SEAL = re.compile(rb'"sha256": "([0-9a-f]{64})"\n\}\Z')


def seal(content: Mapping[str, Any]) -> bytes:
    """JSON of a mapping that does not have the key itself, with its seal."""
    text = json.dumps({**content, KEY: ""}, indent=1, ensure_ascii=False).encode()
    before = text[: -len(b'"sha256": ""\n}')]
    return before + f'"{KEY}": "{hashlib.sha256(before).hexdigest()}"\n}}'.encode()


def unseal(data: bytes) -> dict[str, Any]:
    """What was sealed; a file of an earlier version, which has no seal, is taken as it is.

    Raises:
        ValueError: it is no JSON object, or not the one that was written.
    """
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("it holds no object")
    match = _SEAL.search(data)
    if match and hashlib.sha256(data[: match.start()]).hexdigest().encode() != match[1]:
        raise ValueError("it is not what was written")
    if content.pop(KEY, None) is not None and not match:
        raise ValueError("its seal is broken")
    return content
