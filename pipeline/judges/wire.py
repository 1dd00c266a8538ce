"""A small HTTP/1.1 client for one server in the clear: three times as many calls per second as a general one.

A judge's calls are all alike: POST, JSON, one origin, no redirects, no cookies, no compression. https and proxies are
left to `web.Web`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from pipeline.endpoint import Transient
from pipeline.judges.http import Response

_LONGEST = 1 << 24


class Wire:
    """Kept-alive connections to one server; use it in one event loop, and close it there.

    Args:
        url: http address that every call goes to.
        headers: sent with every call.
        timeout: seconds for a whole call.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        self._host, self._port = parts.hostname, parts.port or 80
        given = {"Host": parts.netloc, "Content-Type": "application/json", **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self._head = f"POST {parts.path} HTTP/1.1\r\n{lines}".encode("latin-1")
        self._timeout = timeout
        self._idle: list[_Connection] = []

    async def post(self, content: bytes) -> Response:
        """Send one call.

        Raises:
            Transient: no connection, no whole answer in time, or something that is no HTTP.
        """
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connection()
                try:
                    response = await connection.post(self._head, content)
                finally:
                    self._keep(connection)
        except TimeoutError:
            raise Transient(f"gave no answer in {self._timeout:g} s", billed=True) from None
        return response

    async def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    async def _connection(self) -> _Connection:
        while self._idle:
            if (connection := self._idle.pop()).open:
                return connection
        try:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(_Connection, self._host, self._port)
        except OSError as error:
            raise Transient(f"cannot be reached ({type(error).__name__})") from None
        return connection

    def _keep(self, connection: _Connection) -> None:
        if connection.open and not connection.busy:
            self._idle.append(connection)
        else:
            connection.close()


class _Connection(asyncio.Protocol):
    """One connection: one call at a time."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._answer: asyncio.Future[Response] | None = None
        self._buffer = bytearray()
        self.open = True

    @property
    def busy(self) -> bool:
        return self._answer is not None

    async def post(self, head: bytes, content: bytes) -> Response:
        self._answer = asyncio.get_running_loop().create_future()
        self._buffer.clear()
        self._transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(content), content))
        response = await self._answer
        self._answer = None
        return response

    def close(self) -> None:
        self.open = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._look(ended=False)

    def eof_received(self) -> None:
        self.open = False
        self._look(ended=True)

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._answer and not self._answer.done():
            name = type(error).__name__ if error else "closed"
            self._answer.set_exception(Transient(f"broke the connection ({name})", billed=True))

    def _look(self, *, ended: bool) -> None:
        """Give the answer, if it is whole."""
        if self._answer is None or self._answer.done():
            return
        try:
            found = _parse(bytes(self._buffer), ended=ended)
        except ValueError:
            self._answer.set_exception(Transient("answered something that is no HTTP", billed=True))
            return
        if found:
            response, last = found
            self.open = self.open and not last
            self._answer.set_result(response)
        elif len(self._buffer) > _LONGEST:
            self._answer.set_exception(Transient("answered without an end", billed=True))


def _parse(data: bytes, *, ended: bool) -> tuple[Response, bool] | None:
    """A response and whether the connection ends with it; None while it is not whole.

    Raises:
        ValueError: it is no HTTP.
    """
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        if len(head) > _LONGEST >> 8 or not (head.startswith(b"HTTP/") or b"HTTP/".startswith(head[:5])):
            raise ValueError("no HTTP")
        return None
    if not head.startswith(b"HTTP/1."):
        raise ValueError("no HTTP/1")
    status = int(head[9:12])
    lines = head.lower().split(b"\r\n")
    content, last = _content(rest, lines, ended=ended)
    if content is None:
        return None
    last = last or head.startswith(b"HTTP/1.0") or _header(lines, b"connection") == "close"
    return Response(status, _header(lines, b"retry-after"), content), last


def _header(lines: list[bytes], name: bytes) -> str | None:
    """A header's value, in lower case; None if there is none."""
    for line in lines:
        if line.startswith(name + b":"):
            return line[len(name) + 1 :].strip().decode("latin-1")
    return None


def _content(rest: bytes, lines: list[bytes], *, ended: bool) -> tuple[bytes | None, bool]:
    """A body, None while it is not whole, and whether only the connection's end ends it."""
    if length := _header(lines, b"content-length"):
        return (rest[: int(length)] if len(rest) >= int(length) else None), False
    if "chunked" in (_header(lines, b"transfer-encoding") or ""):
        return _joined(rest), False
    return (rest if ended else None), True


def _joined(rest: bytes) -> bytes | None:
    """The chunks of a body, None while the last one is missing."""
    joined, place = bytearray(), 0
    while (line_end := rest.find(b"\r\n", place)) >= 0:
        size = int(rest[place:line_end].split(b";")[0], 16)
        place = line_end + 2 + size + 2
        if size == 0:
            return bytes(joined)
        joined += rest[line_end + 2 : line_end + 2 + size]
    return None
