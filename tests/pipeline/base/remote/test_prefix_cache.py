"""The prefix cache's hit rate from a server's metrics."""

from __future__ import annotations

import json
import socket
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from darklode.pipeline.base.remote.prefix_cache import PrefixCache
from helpers.fake_chat import FakeChat


def ask(server: FakeChat, text: str) -> None:
    messages = [{"role": "system", "content": "s" * 4000}, {"role": "user", "content": text}]
    body = json.dumps({"model": server.model, "messages": messages}).encode()
    urllib.request.urlopen(f"{server.url}/chat/completions", body).close()


def test_the_rate_counts_from_the_beginning_on_and_over_all_servers() -> None:
    with FakeChat() as one, FakeChat() as other:
        ask(one, "before")
        cache = PrefixCache([one.url, other.url])
        assert cache.hit_rate is None
        ask(one, "a")
        asked = one._tokens({"messages": [{"content": "s" * 4000}, {"content": "a"}]})
        assert cache.hit_rate == 1000 / asked
        ask(other, "a")
        assert cache.hit_rate == 1000 / (2 * asked)


def test_a_server_without_metrics_has_no_rate() -> None:
    assert PrefixCache(["http://127.0.0.1:1/v1"]).hit_rate is None


def test_what_is_no_http_is_no_rate() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with listening.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(b"no server of this kind\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        assert PrefixCache([f"http://127.0.0.1:{listening.getsockname()[1]}/v1"]).hit_rate is None


class Bare(BaseHTTPRequestHandler):
    """Knows no metrics, and counts who asks for them."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_server_that_showed_no_metrics_is_not_asked_again() -> None:
    bare = ThreadingHTTPServer(("127.0.0.1", 0), Bare)
    threading.Thread(target=bare.serve_forever, daemon=True).start()
    try:
        with FakeChat() as other:
            cache = PrefixCache([f"http://127.0.0.1:{bare.server_port}/v1", other.url])
            assert Bare.asked == ["/metrics"]
            ask(other, "a")
            ask(other, "a")
            assert cache.hit_rate
            assert Bare.asked == ["/metrics"]
    finally:
        bare.shutdown()
        bare.server_close()
