"""Which HTTP client serves an address."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from pipeline.judges.http import Http
from pipeline.judges.wire import Wire


def http_client(url: str, headers: Mapping[str, str], timeout: float) -> Http:
    """A client for one address: the quick one in the clear, aiohttp for https or where a proxy is set.

    Args:
        url: every call goes there.
        headers: sent with every call.
        timeout: seconds for a whole call.
    """
    parts = urlsplit(url)
    proxied = parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")
    if parts.scheme == "http" and not proxied:
        return Wire(url, headers, timeout)
    from pipeline.judges.web import Web  # noqa: PLC0415 (heavy)

    return Web(url, headers, timeout)
