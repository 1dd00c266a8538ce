"""Kept connections whose replies belong to their requests.

HTTP/1.1 pairs replies with requests by their order alone. If a server or a proxy sends a reply twice, aiohttp reads the
second one as the reply to the next request on that connection. So a connection that holds bytes before a request is
sent is closed, and a reply with the bytes of an earlier one on its connection is refused.

Replies to different calls differ: a chat completion has an id, embeddings have their numbers. Where a server gives the
same bytes over different connections all the same, each call gets a connection of its own.
"""

from __future__ import annotations

import select
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

_REMEMBERED_PER_CONNECTION = 1 << 10
_REMEMBERED = 1 << 14


class OutOfStep(aiohttp.ClientError):
    """A kept connection holds bytes that no request asked for; it is closed, and nothing was sent."""


@dataclass
class _Stream:
    """What came over a connection: hashes of the last replies, and whether one of them came twice."""

    replies: dict[int, None] = field(default_factory=dict)
    broken: bool = False


_streams: WeakKeyDictionary[ResponseHandler, _Stream] = WeakKeyDictionary()


class CheckedRequest(aiohttp.ClientRequest):
    """A request that is not sent over a connection that is out of step."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """See aiohttp.

        Raises:
            OutOfStep: send it again.
        """
        protocol = conn.protocol
        if protocol is not None and protocol in _streams:
            if protocol.should_close or _is_readable(conn):
                raise OutOfStep
        elif protocol is not None:  # new: what it may hold belongs to the TLS handshake
            _streams[protocol] = _Stream()
        return await super().send(conn)


class CheckedResponse(aiohttp.ClientResponse):
    """A response that knows its connection, also after that was given back."""

    protocol: ResponseHandler | None = None

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """See aiohttp."""
        self.protocol = connection.protocol
        return await super().start(connection)


class RepliesSeen:
    """Tells replies that were sent twice from replies that are alike.

    Attributes:
        repeating: addresses whose replies to different calls have the same bytes.
    """

    def __init__(self) -> None:
        self.repeating: set[str] = set()
        self._replies: dict[tuple[str, int], None] = {}

    def is_repeated(self, url: str, response: aiohttp.ClientResponse, body: bytes) -> bool:
        """Whether a reply over a kept connection may be one to an earlier call; the connection is closed then."""
        protocol: ResponseHandler | None = getattr(response, "protocol", None)
        stream, reply = None if protocol is None else _streams.get(protocol), hash(body)
        if stream is None or protocol is None:
            return False
        if stream.broken or reply in stream.replies:
            stream.broken = True
            protocol.close()
            return True
        _remember(stream.replies, reply, _REMEMBERED_PER_CONNECTION)
        if (url, reply) in self._replies:
            self.repeating.add(url)
        _remember(self._replies, (url, reply), _REMEMBERED)
        return False


Key = TypeVar("Key")


def _remember(cache: dict[Key, None], key: Key, at_most: int) -> None:
    cache[key] = None
    if len(cache) > at_most:
        del cache[next(iter(cache))]


def _is_readable(conn: Connection) -> bool:
    """Whether the system holds something that the event loop has not read: left-over bytes, or the connection's end."""
    sock = conn.transport.get_extra_info("socket") if conn.transport else None
    if sock is None or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
