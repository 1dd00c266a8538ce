"""Posting calls to servers that answer byte by byte, wrongly, late or not at all."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from darklode.pipeline.base.remote import endpoint
from darklode.pipeline.base.remote.call_errors import BadReply, Response, TransientError
from darklode.pipeline.base.remote.endpoint import Http, is_listening

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]


class Server:
    """Answers each request as it is told; `connections` and `requests` count what came."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.connections = 0
        self.requests: list[bytes] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                self.requests.append(head + body)
                await self._answer(reader, writer, body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions"
        finally:
            server.close()


def bytes_of(*pieces: bytes, close: bool = False) -> Answer:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _body: bytes) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.005)
        if close:
            writer.close()
            raise ConnectionError

    return answer


def posted(answer: Answer, times: int = 1, timeout: float = 5) -> tuple[list[Response], Server]:
    """Responses to one call after another, each over a connection of its own."""
    server = Server(answer)

    async def go() -> list[Response]:
        async with server.serving() as url:
            found = []
            for number in range(times):
                http = Http((url,), {"Authorization": "Bearer s3cret"}, timeout, "judge")
                try:
                    found.append(await http.post_json(url, b'{"n": %d}' % number))
                finally:
                    await http.close()
            return found

    return asyncio.run(go()), server


PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        bytes_of(PLAIN + b'{"a":1}'),
        bytes_of(*(bytes([one]) for one in PLAIN + b'{"a":1}')),
        bytes_of(PLAIN, b'{"a"', b":1}"),
        bytes_of(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n", b'{"a\r\n4;x=y\r\n":1}\r\n0\r\n\r\n'),
        bytes_of(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"a":1}', close=True),
        bytes_of(b'HTTP/1.0 200 OK\r\n\r\n{"a"', b":1}", close=True),
        bytes_of(b'HTTP/1.1 200 OK\r\ncontent-length:7\r\nconnection: Close\r\n\r\n{"a":1}', close=True),
    ],
)
def test_whole_answers(answer: Answer) -> None:
    responses, server = posted(answer, times=3)
    assert responses == [Response(200, None, b'{"a":1}')] * 3
    assert [request.split(b"\r\n\r\n")[1] for request in server.requests] == [b'{"n": %d}' % n for n in range(3)]
    assert server.requests[0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"authorization: bearer s3cret\r\n" in server.requests[0].lower()
    assert b"content-type: application/json\r\n" in server.requests[0].lower()


def whole(content: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(content), content)


class Repeating:
    """Answers with the call's own content, and sends some answers twice.

    Args:
        twice: of which calls, from 0.
        pause: seconds before an answer is sent again.
        alike: all calls get the same answer.
        again: what is sent then; None: the answer.
    """

    def __init__(self, *twice: int, pause: float = 0.0, alike: bool = False, again: bytes | None = None) -> None:
        self._twice, self._pause, self._alike, self._again = twice, pause, alike, again
        self._calls = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __call__(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
        number, self._calls = self._calls, self._calls + 1
        content = whole(b"alike" if self._alike else body)
        writer.write(content)
        if number in self._twice:
            self._tasks.append(asyncio.create_task(self._send_again(writer, self._again or content)))

    async def _send_again(self, writer: asyncio.StreamWriter, content: bytes) -> None:
        await asyncio.sleep(self._pause)
        writer.write(content)


def called(answer: Answer, calls: int, pause: float = 0.0) -> tuple[list[tuple[bytes, bytes]], int, Server]:
    """What each call got over kept connections, sent again while its reply is refused; how often; the server."""
    server, refused = Server(answer), 0

    async def go() -> list[tuple[bytes, bytes]]:
        nonlocal refused
        found = []
        async with server.serving() as url:
            http = Http((url,), {}, 5, "judge")
            for number in range(calls):
                content = b"call %d" % number
                for _ in range(10):
                    try:
                        found.append((content, (await http.post_json(url, content)).content))
                        break
                    except BadReply:
                        refused += 1
                await asyncio.sleep(pause)
            await http.close()
        return found

    return asyncio.run(go()), refused, server


def test_a_connection_is_used_again() -> None:
    found, refused, server = called(Repeating(), 5)
    assert all(content == reply for content, reply in found)
    assert (len(found), refused, server.connections) == (5, 0, 1)


@pytest.mark.parametrize("pause", [0.0, 0.002])
@pytest.mark.parametrize("late", [0.0, 0.001, 0.02])
def test_an_answer_that_is_sent_twice_answers_no_other_call(pause: float, late: float) -> None:
    calls = 40 if pause else 400  # they take longer than the longest delay of a repeated answer
    found, _, server = called(Repeating(2, 5, 6, 20, pause=late), calls, pause)
    assert len(found) == calls
    assert all(content == reply for content, reply in found)
    assert 1 < server.connections < 20


def test_an_idle_connection_that_holds_bytes_is_closed_before_a_call() -> None:
    timeout = whole(b"too slow", "408 Request Timeout")
    found, refused, server = called(Repeating(0, pause=0.005, again=timeout), 3, pause=0.02)
    assert all(content == reply for content, reply in found)
    assert (len(server.requests), refused, server.connections) == (3, 0, 2)


def test_a_server_that_answers_all_alike_gets_a_connection_a_call() -> None:
    found, refused, server = called(Repeating(alike=True), 10)
    assert {reply for _, reply in found} == {b"alike"}
    assert (len(found), refused) == (10, 1), "the second reply could be the first, sent twice"
    assert server.connections == 10


def test_status_and_retry_after_are_handed_on() -> None:
    head = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
    assert posted(bytes_of(head))[0] == [Response(429, "7", b"")]


def test_a_redirect_is_not_followed() -> None:
    head = b"HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    responses, server = posted(bytes_of(head))
    assert (responses[0].status, responses[0].location, len(server.requests)) == (307, "http://127.0.0.1:9/", 1)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (bytes_of(close=True), "broke the connection"),
        (bytes_of(PLAIN + b'{"a"', close=True), "broke the connection"),
        (bytes_of(PLAIN[:30], close=True), ""),
        (bytes_of(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", close=True), "broke"),
        (bytes_of(b"SSH-2.0-OpenSSH_9.6\r\n", close=True), ""),
        (bytes_of(b"HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n"), ""),
        (bytes_of(PLAIN), "did not answer within 0.3 s"),
    ],
)
def test_broken_answers_may_pass(answer: Answer, reason: str) -> None:
    with pytest.raises(TransientError) as caught:
        posted(answer, timeout=0.3)
    assert reason in caught.value.reason
    assert caught.value.billed
    assert "s3cret" not in caught.value.reason


def test_a_server_that_is_not_there() -> None:
    async def go() -> None:
        url = "http://127.0.0.1:1/v1/chat/completions"
        http = Http((url,), {}, 5, "judge")
        try:
            await http.post_json(url, b"{}")
        finally:
            await http.close()

    with pytest.raises(TransientError, match=r"cannot be reached") as caught:
        asyncio.run(go())
    assert not caught.value.billed


def test_after_a_broken_answer_the_next_call_has_a_new_connection() -> None:
    numbers = iter(range(100))

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _body: bytes) -> None:
        writer.write(PLAIN + (b'{"a":1}' if next(numbers) else b"{"))
        if writer.transport.get_write_buffer_size() == 0:
            await asyncio.sleep(0)

    server = Server(answer)

    async def go() -> Response:
        async with server.serving() as url:
            http = Http((url,), {}, 0.2, "judge")
            with pytest.raises(TransientError):
                await http.post_json(url, b"1")
            found = await http.post_json(url, b"2")
            await http.close()
            return found

    assert asyncio.run(go()).content == b'{"a":1}'
    assert server.connections == 2


def test_a_name_that_nobody_looks_up_in_time_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: hangs.wait() and [])
    monkeypatch.setattr(endpoint, "CONNECT_SECONDS", 0.05)
    assert not is_listening("http://hub.example/v1")
    hangs.set()
