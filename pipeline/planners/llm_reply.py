"""What a language model's reply says of a query's terms."""

import json
import re

from pipeline.planners.tokens import Tokens

_FENCE = re.compile(r"\A```\w*\s*(.*?)\s*```\Z", re.S)


class Unreadable(ValueError):
    """The reply holds no importances."""


def importances(reply: object, query: str, tokens: Tokens) -> dict[str, float]:
    """Term → importance of the terms whose words stand side by side in the query; others are ignored.

    Terms are compared by stems and named by them; of two that are the same the greater importance counts.

    Raises:
        Unreadable: the reply is no JSON object, or has a value that is no number from 0 to 1.
    """
    held = f" {' '.join(tokens.of(query))} "
    found: dict[str, float] = {}
    for term, share in _object(reply).items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise Unreadable(f"importance {share!r} is no number from 0 to 1")
        name = " ".join(tokens.of(term))
        if name and f" {name} " in held:
            found[name] = max(found.get(name, 0.0), float(share))
    return found


def _object(reply: object) -> dict[str, object]:
    if not isinstance(reply, str):
        raise Unreadable("the reply has no text")
    fenced = _FENCE.match(reply.strip())
    try:
        read = json.loads(fenced[1] if fenced else reply)
    except (ValueError, RecursionError):
        raise Unreadable("the reply is no JSON") from None
    if not isinstance(read, dict):
        raise Unreadable("the reply is no JSON object")
    return read
