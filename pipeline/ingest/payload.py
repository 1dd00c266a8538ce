"""Rows as JSON objects, for people who look at rejects."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

SHORT = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
ESCAPES = SHORT | {chr(code): f"\\u{code:04x}" for code in range(32) if chr(code) not in SHORT}
SPECIAL = r'[\x00-\x1f"\\]'


def json_of(columns: Mapping[str, pa.Array], longest: int) -> pa.Array:
    """One JSON object a row, without nulls; values are cut to `longest` characters."""
    members = [_member(role, values, longest) for role, values in columns.items()]
    inside = pc.binary_join_element_wise(*members, ", ", null_handling="skip")
    return pc.binary_join_element_wise("{", inside, "}", "")


def _member(role: str, values: pa.Array, longest: int) -> pa.Array:
    texts = pc.utf8_slice_codeunits(values.cast(pa.string()), 0, longest)
    if pc.any(pc.match_substring_regex(texts, SPECIAL)).as_py():
        for character, escaped in ESCAPES.items():
            texts = pc.replace_substring(texts, character, escaped)
    return pc.binary_join_element_wise(f'"{role}": "', texts, '"', "")
