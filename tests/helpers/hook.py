"""A webhook on a real socket, named by the environment."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from darklode.flows.prefect.notifications import ADDRESS_VARIABLE

SECRET = "hook-0123abcd"


class Hook:
    """A webhook: keeps what is posted to it, and answers with a status."""

    def __init__(self) -> None:
        self.status, self.posted = 204, list[tuple[str, dict[str, str]]]()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.posted.append((self.path, json.loads(body)))
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/{SECRET}"


@contextmanager
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """A webhook that DARKLODE_WEBHOOK names inside the block."""
    hook = Hook()
    threading.Thread(target=hook.server.serve_forever, daemon=True).start()
    monkeypatch.setenv(ADDRESS_VARIABLE, hook.address)
    yield hook
    hook.server.shutdown()
    hook.server.server_close()
