"""The prefix cache's hit rate, as vLLM counts it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

_COUNTER = re.compile(r"^vllm:prefix_cache_(queries|hits)_total(?:\{[^}]*\})?\s+([0-9.eE+]+)\s*$", re.M)
_LONGEST = 1 << 22
_SECONDS = 2.0
_LOOK_SECONDS = 5.0


class PrefixCache:
    """Counts from now on; servers without such metrics are left out.

    Args:
        base_urls: of the judge's servers.
    """

    def __init__(self, base_urls: Sequence[str]) -> None:
        self._urls = [f"{parts.scheme}://{parts.netloc}/metrics" for parts in map(urlsplit, base_urls)]
        self._start = self._counts()
        self._looked = time.monotonic()
        self._rate: float | None = None

    @property
    def hit_rate(self) -> float | None:
        """Share of the prompt tokens since then that came from the cache, on all servers; None while none is known.

        It asks the servers, which takes a moment.
        """
        asked, served = (now - then for now, then in zip(self._counts(), self._start, strict=True))
        return served / asked if asked > 0 else None

    @property
    def recent_rate(self) -> float | None:
        """`hit_rate` as it was at most five seconds ago; the servers are not asked more often."""
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._rate, self._looked = self.hit_rate, time.monotonic()
        return self._rate

    def _counts(self) -> tuple[float, float]:
        """Tokens looked up and tokens found, so far."""
        found = {"queries": 0.0, "hits": 0.0}
        for url in self._urls:
            for name, value in _COUNTER.findall(_text(url)):
                found[name] += float(value)
        return found["queries"], found["hits"]


def _text(url: str) -> str:
    try:
        with urlopen(Request(url), timeout=_SECONDS) as answer:  # noqa: S310 (an address of the settings, http or https)
            content: bytes = answer.read(_LONGEST)
            return content.decode("utf-8", "replace")
    except (URLError, OSError, ValueError):
        return ""
