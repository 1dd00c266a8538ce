"""Small JSON files with a checksum: the last key is the sha256 of everything before it."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

KEY = "sha256"
_SEAL = re.compile(rb'"sha256": "([0-9a-f]{64})"\n\}\Z')


def seal(content: Mapping[str, Any]) -> bytes:
    """Serialize a mapping with its checksum."""
    text = json.dumps({**content, KEY: ""}, indent=1, ensure_ascii=False).encode()
    before = text[: -len(b'"sha256": ""\n}')]
    return before + f'"{KEY}": "{hashlib.sha256(before).hexdigest()}"\n}}'.encode()


def unseal(data: bytes) -> dict[str, Any]:
    """Parse and verify; a file without a checksum, from an earlier version, is accepted.

    Raises:
        ValueError: it is not a JSON object, or the checksum differs.
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
