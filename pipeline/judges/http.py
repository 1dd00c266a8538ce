"""Posting calls to one address: aiohttp, as a judge needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from pipeline.endpoint import Transient


@dataclass(frozen=True)
class Response:
    """Status, the header retry-after if there is one, and the body."""

    status: int
    retry_after: str | None
    content: bytes


class Http:
    """Posts JSON, as often at once as it is called; used in one event loop and closed there.

    It takes the environment's proxies, and follows no redirects, which could carry the key away.

    Args:
        url: every call goes there.
        headers: sent with every call.
        timeout: seconds for a whole call.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Content-Type": "application/json", **headers},
            timeout=aiohttp.ClientTimeout(total=timeout),
            trust_env=_proxied(url),  # it looks at the environment with every call
        )

    async def post(self, content: bytes) -> Response:
        """Send one call.

        Raises:
            Transient: there was no whole answer.
        """
        try:
            async with self._session.post(self._url, data=content, allow_redirects=False) as answer:
                return Response(answer.status, answer.headers.get("retry-after"), await answer.read())
        except TimeoutError:
            raise Transient(f"gave no answer in {self._timeout:g} s", billed=True) from None
        except aiohttp.ClientConnectorError as error:
            raise Transient(f"cannot be reached ({type(error).__name__})") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Transient(f"broke the connection ({type(error).__name__})", billed=True) from None

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()


def _proxied(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")
