"""Hit rate of a server's prefix cache, from vLLM's metrics."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from http.client import HTTPException
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

_COUNTER = re.compile(r"^vllm:prefix_cache_(queries|hits)_total(?:\{[^}]*\})?\s+([0-9.eE+]+)\s*$", re.M)
_MAX_BYTES = 1 << 22
_TIMEOUT_SECONDS = 2.0
_REFRESH_SECONDS = 5.0


class PrefixCache:
    """Measures the hit rate since its creation; servers without these metrics are ignored.

    Args:
        base_urls: URLs of the servers.
    """

    def __init__(self, base_urls: Sequence[str]) -> None:
        urls = [f"{parts.scheme}://{parts.netloc}/metrics" for parts in map(urlsplit, base_urls)]
        counters = {url: counts for url in urls if (counts := _counts(url)) is not None}
        self._urls, self._start = list(counters), _sum(counters.values())
        self._read_at = time.monotonic()
        self._rate: float | None = None

    @property
    def hit_rate(self) -> float | None:
        """Share of prompt tokens served from the cache, over all servers; None if unknown.

        Queries the servers.
        """
        now = _sum(_counts(url) or (0.0, 0.0) for url in self._urls)
        n_queries, served = now[0] - self._start[0], now[1] - self._start[1]
        return served / n_queries if n_queries > 0 else None

    @property
    def recent_rate(self) -> float | None:
        """`hit_rate`, cached for five seconds."""
        if time.monotonic() - self._read_at > _REFRESH_SECONDS:
            self._rate, self._read_at = self.hit_rate, time.monotonic()
        return self._rate


def _counts(url: str) -> tuple[float, float] | None:
    """Tokens looked up and tokens found; None if the server has no such metrics."""
    samples = _COUNTER.findall(_text(url))
    if not samples:
        return None
    queries, hits = (sum(float(value) for name, value in samples if name == metric) for metric in ("queries", "hits"))
    return queries, hits


def _sum(counts: Iterable[tuple[float, float]]) -> tuple[float, float]:
    pairs = list(counts)
    return sum(queries for queries, _ in pairs), sum(hits for _, hits in pairs)


def _text(url: str) -> str:
    try:
        with urlopen(Request(url), timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 (a URL of the settings, http or https)
            content: bytes = answer.read(_MAX_BYTES)
            return content.decode("utf-8", "replace")
    except (OSError, HTTPException, ValueError):
        return ""
