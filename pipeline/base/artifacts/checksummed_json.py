"""JSON files with a checksum: the last key is the SHA-256 of all bytes before it.

Atomic writes rule out half-written files; the checksum detects manifests and records that were edited, restored in
part or damaged on disk, before their facts are trusted.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

CHECKSUM_KEY = "sha256"
_CHECKSUM = re.compile(rb'"sha256": "([0-9a-f]{64})"\n\}\Z')


def dump_checksummed(content: Mapping[str, Any]) -> bytes:
    """Serialize a mapping to JSON, one key per line, and append its checksum as the last key."""
    # Python's encoder is ten times slower with an indent.
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items()]
    signed_bytes = "".join(["{\n", *(f" {line},\n" for line in lines), " "]).encode()
    return signed_bytes + f'"{CHECKSUM_KEY}": "{hashlib.sha256(signed_bytes).hexdigest()}"\n}}'.encode()


def load_checksummed(data: bytes) -> dict[str, Any]:
    """Parse JSON and verify its checksum. Files of earlier versions, which have no checksum, are accepted.

    Raises:
        ValueError: the data is not a JSON object, or the checksum is wrong or malformed.
    """
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    match = _CHECKSUM.search(data)
    if match and hashlib.sha256(data[: match.start()]).hexdigest().encode() != match[1]:
        raise ValueError("its checksum differs")
    if content.pop(CHECKSUM_KEY, None) is not None and not match:
        raise ValueError("its checksum is malformed")
    return content
