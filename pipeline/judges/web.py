"""The general HTTP client, for https and for proxies."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp

from pipeline.endpoint import Transient
from pipeline.judges.http import Response


class Web:
    """aiohttp with the proxies of the environment; it follows no redirects, which could carry the key away."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Content-Type": "application/json", **headers},
            timeout=aiohttp.ClientTimeout(total=timeout),
            trust_env=True,
        )

    async def post(self, content: bytes) -> Response:
        """See `Http`."""
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
        """See `Http`."""
        await self._session.close()
