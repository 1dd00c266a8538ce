"""The table of faults, over real sockets: what ends the work at once, what refuses a call, what is waited for."""

from __future__ import annotations

import asyncio
import json
import math
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from darklode.pipeline.base.errors import DarklodeError, MissingPart
from darklode.pipeline.base.remote import client
from darklode.pipeline.base.remote.budget import Usage
from darklode.pipeline.base.remote.call_errors import (
    BadReply,
    RequestRejected,
    Response,
    ServerError,
    TransientError,
    UnparsableReply,
    connection_error,
    response_error,
)
from darklode.pipeline.base.remote.client import Call, Client
from darklode.pipeline.base.remote.endpoint import Endpoint
from helpers.fake_openai import FakeOpenAI

KEY = "sk-very-secret"
SECONDS = 20.0
"""What "at once" may take on a busy machine; far below `retry_timeout`."""


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setattr(client, "FIRST_WAIT", 0.02)


class Scripted:
    """Answers with the replies of a script, the last one again and again: a status, headers and a body each."""

    def __init__(self, *script: tuple[int, Mapping[str, str], bytes]) -> None:
        self.script, self.requests = list(script), 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
                self.requests += 1
                status, headers, body = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                writer.write(f"HTTP/1.1 {status} X\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[str]:
        server = await asyncio.start_server(self.handle, "127.0.0.1", port, ssl=tls)
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        finally:
            server.close()


OK = (200, {}, b'{"n": 7}')


def error(message: str = f"no, {KEY}", code: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "code": code}}).encode()


async def asked(base_url: str, **changed: Any) -> object:
    """The reply to one call."""
    given: dict[str, Any] = {"section": "judge", "model": "m", "base_urls": (base_url,), "path": "/x"}
    given |= {"api_key_env": "TEST_KEY", "max_concurrency": 4, "timeout": 5.0, "retry_timeout": 600.0}
    async with Client(Endpoint(**(given | changed))).session() as session:
        return await session.call(Call(b"{}", Usage(1, 0), "a call", lambda found: found["n"]))


def answered(*script: tuple[int, Mapping[str, str], bytes], **changed: Any) -> tuple[object, Scripted]:
    server = Scripted(*script)

    async def go() -> object:
        async with server.serving() as url:
            return await asked(url, **changed)

    return asyncio.run(go()), server


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        ((401, {}, error()), MissingPart, "rejected the key in TEST_KEY, status 401"),
        ((403, {}, error()), MissingPart, "rejected the key in TEST_KEY, status 403"),
        ((407, {}, error()), MissingPart, "rejected the key in TEST_KEY, status 407"),
        ((402, {}, error()), MissingPart, "answered 402, no credit"),
        ((429, {}, error(code="insufficient_quota")), MissingPart, "answered 429, no credit"),
        ((404, {}, error()), MissingPart, r"answered 404: check judge\.base_url and the model"),
        ((405, {}, error()), DarklodeError, r"answered 405: check judge\.base_url"),
        (
            (307, {"location": "https://user:pw@elsewhere.example/v1/x?key=k"}, b""),
            DarklodeError,
            r"answered 307, a redirect to elsewhere\.example/v1/x, which is not followed",
        ),
    ],
)
def test_what_no_waiting_mends_is_said_at_once_with_the_target(
    reply: tuple[int, Mapping[str, str], bytes], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=rf"m at 127\.0\.0\.1:\d+/v1 {said}") as raised:
        answered(reply)
    assert KEY not in str(raised.value)
    assert "key=k" not in str(raised.value)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_refuses_a_call_leaves_others_alone(status: int) -> None:
    with pytest.raises(RequestRejected, match=f"status {status}: maximum context length is 5") as raised:
        answered((status, {}, error("maximum context length is 5")))
    assert raised.value.too_long


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 501, 502, 503, 504, 529])
def test_what_may_pass_is_sent_again(status: int) -> None:
    reply, server = answered((status, {}, error()), (status, {"retry-after": "0"}, b"<html>"), OK)
    assert (reply, server.requests) == (7, 3)


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b'{"n": ', b"[]", b""])
def test_a_reply_that_is_not_what_was_asked_for_is_sent_again(body: bytes) -> None:
    reply, server = answered((200, {}, body), OK)
    assert (reply, server.requests) == (7, 2)


@pytest.mark.parametrize(("body", "named"), [(b"[" * 10_000, "RecursionError"), (b"9" * 5000, "ValueError")])
def test_a_reply_that_no_reader_can_take_in_is_named_as_such(body: bytes, named: str) -> None:
    async def go() -> None:
        async with Scripted((200, {}, body)).serving() as url:
            given = Endpoint("judge", "m", (url,), "/x", "", 4, 5.0, 600.0)
            async with Client(given).session() as session:
                await session.call(Call(b"{}", Usage(1, 0), "a call", dict, {UnparsableReply: 2}))

    with pytest.raises(RequestRejected, match=rf"JSON that cannot be parsed \({named}\)"):
        asyncio.run(go())


def test_an_error_can_be_shown() -> None:
    with pytest.raises(RequestRejected, match=r"status 400: so \ufffd$"):
        answered((400, {}, b'{"error": {"message": "so \\ud800"}}'))


def test_a_server_that_comes_up_later_is_waited_for() -> None:
    """Its port refuses connections at first."""

    async def go() -> object:
        async with Scripted(OK).serving() as url:
            port = int(url.split(":")[2].split("/")[0])
        asking = asyncio.create_task(asked(f"http://127.0.0.1:{port}/v1"))
        await asyncio.sleep(0.3)
        async with Scripted(OK).serving(port=port):
            return await asking

    assert asyncio.run(go()) == 7


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's own, which nobody vouches for."""
    key, cert = (tmp_path_factory.mktemp("tls") / name for name in ("key.pem", "cert.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


def ends(base_url: str, said: str) -> None:
    """The call fails for good, long before `retry_timeout`."""
    began = time.monotonic()
    with pytest.raises(DarklodeError, match=said):
        asyncio.run(asked(base_url))
    assert time.monotonic() - began < SECONDS


def test_a_wrong_certificate_ends_it(certificate: ssl.SSLContext) -> None:
    async def go() -> None:
        async with Scripted(OK).serving(certificate) as url:
            await asked(url)

    with pytest.raises(DarklodeError, match=r"m at 127\.0\.0\.1:\d+/v1 has an invalid TLS certificate.*self.signed"):
        asyncio.run(go())


def test_tls_to_a_server_without_it_ends_it() -> None:
    with FakeOpenAI() as server:  # it answers what is no HTTP in plain text, as web servers do
        ends(server.url.replace("http:", "https:"), "has an invalid TLS certificate")


def test_an_unknown_host_ends_it() -> None:
    ends("http://no-such-host.invalid/v1", r"m at no-such-host\.invalid/v1 has an unknown host name")


def test_an_address_that_is_none_ends_it() -> None:
    ends("http://127.0.0.1:99999/v1", r"m at 127\.0\.0\.1:99999/v1 is not a valid URL")


def test_a_resolver_that_fails_for_now_is_waited_for_a_little() -> None:
    import socket

    import aiohttp
    from aiohttp.client_reqrep import ConnectionKey

    to = ConnectionKey("h", 80, False, True, None, None, None)  # type: ignore[call-arg]
    fault = connection_error(
        aiohttp.ClientConnectorDNSError(to, socket.gaierror(socket.EAI_AGAIN, "for now")), 5, "judge"
    )
    assert isinstance(fault, TransientError)
    assert fault.patience < 10 < TransientError("otherwise").patience == math.inf


def test_what_a_call_may_be_to_blame_for() -> None:
    assert isinstance(response_error(Response(500, None, b""), "", "", "judge"), ServerError)
    assert not isinstance(response_error(Response(502, None, b""), "", "", "judge"), ServerError)
    assert issubclass(BadReply, TransientError)
    assert BadReply("is odd").reason == "answered 200, but the reply is odd"


def test_after_so_many_tries_the_call_is_to_blame() -> None:
    async def go() -> None:
        async with Scripted((500, {}, b"")).serving() as url:
            given = Endpoint("judge", "m", (url,), "/x", "", 4, 5.0, 600.0)
            async with Client(given).session() as session:
                await session.call(Call(b"{}", Usage(1, 0), "a call", dict, {ServerError: 3}))

    with pytest.raises(RequestRejected, match="answered 500") as raised:
        asyncio.run(go())
    assert isinstance(raised.value.failure, ServerError)
