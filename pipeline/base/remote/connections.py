"""Persistent connections that cannot mix up replies.

HTTP/1.1 matches replies to requests by order only. If a server or a proxy sends a reply twice, aiohttp reads the second
one as the reply to the next request on the connection, which would get a wrong label or vector. Therefore a connection
with unread bytes before a request is closed, and a reply with the bytes of an earlier one on its connection is
rejected.

Replies to different calls normally differ: chat completions have an id, embeddings their values. If a server sends
equal bytes over different connections, each call gets its own connection instead.
"""

from __future__ import annotations

import select
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

_MAX_HASHES_PER_CONNECTION = 1 << 10
_MAX_HASHES = 1 << 14


class OutOfStep(aiohttp.ClientError):
    """A persistent connection has unexpected bytes; it is closed, and the request was not sent."""


@dataclass
class _Stream:
    """State of a connection: hashes of the last replies, and whether one was repeated."""

    replies: dict[int, None] = field(default_factory=dict)
    broken: bool = False


_streams: WeakKeyDictionary[ResponseHandler, _Stream] = WeakKeyDictionary()


class CheckedRequest(aiohttp.ClientRequest):
    """A request that checks its connection for unexpected bytes before it is sent."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Send the request.

        Raises:
            OutOfStep: the request must be sent again.
        """
        protocol = conn.protocol
        if protocol is not None and protocol in _streams:
            if protocol.should_close or _is_readable(conn):
                raise OutOfStep
        elif protocol is not None:  # new connection: bytes may belong to the TLS handshake
            _streams[protocol] = _Stream()
        return await super().send(conn)


class CheckedResponse(aiohttp.ClientResponse):
    """A response that remembers its connection after that was released."""

    protocol: ResponseHandler | None = None

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Send the request."""
        self.protocol = connection.protocol
        return await super().start(connection)


class ReplyHistory:
    """Distinguishes replies sent twice from equal replies.

    Attributes:
        repeating: URLs whose replies to different calls have equal bytes.
    """

    def __init__(self) -> None:
        self.repeating: set[str] = set()
        self._replies: dict[tuple[str, int], None] = {}

    def is_repeated(self, url: str, response: aiohttp.ClientResponse, body: bytes) -> bool:
        """Whether a reply on a persistent connection may belong to an earlier call; then the connection is closed."""
        protocol: ResponseHandler | None = getattr(response, "protocol", None)
        stream, reply = None if protocol is None else _streams.get(protocol), hash(body)
        if stream is None or protocol is None:
            return False
        if stream.broken or reply in stream.replies:
            stream.broken = True
            protocol.close()
            return True
        _remember(stream.replies, reply, _MAX_HASHES_PER_CONNECTION)
        if (url, reply) in self._replies:
            self.repeating.add(url)
        _remember(self._replies, (url, reply), _MAX_HASHES)
        return False


Key = TypeVar("Key")


def _remember(cache: dict[Key, None], key: Key, at_most: int) -> None:
    cache[key] = None
    if len(cache) > at_most:
        del cache[next(iter(cache))]


def _is_readable(conn: Connection) -> bool:
    """Whether the socket has data that the event loop has not read: unexpected bytes, or the end of the connection."""
    sock = conn.transport.get_extra_info("socket") if conn.transport else None
    if sock is None or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
