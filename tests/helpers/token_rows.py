"""Tokens of replies as chat servers give them with their log-probabilities."""

from __future__ import annotations

import math
from typing import Any


def token(text: str, **shares: float) -> dict[str, Any]:
    """A token and its alternatives with their probabilities."""
    top = [{"token": name.replace("_", " "), "logprob": math.log(share)} for name, share in shares.items()]
    return {"token": text, "logprob": {one["token"]: one["logprob"] for one in top}[text], "top_logprobs": top}


def plain(*texts: str) -> list[dict[str, Any]]:
    """Tokens without alternatives."""
    return [{"token": text, "logprob": 0.0, "top_logprobs": []} for text in texts]
