"""A model hub on loopback that serves one folder as a model, by the hub's own protocol."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "acme/minilm"


@contextmanager
def fake_hub(folder: Path, name: str = NAME, kind: str = "models") -> Iterator[str]:
    """The hub's address, for HF_ENDPOINT, while the block runs; `kind` is models or datasets."""
    files = f"/{name}" if kind == "models" else f"/{kind}/{name}"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the tests' output is theirs."""

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path = unquote(self.path).partition("?")[0]
            if path.startswith(f"/api/{kind}/{name}/tree/"):
                return self._send(json.dumps(_tree(folder)).encode(), body)
            if path.startswith(f"/api/{kind}/{name}"):
                siblings = [{"rfilename": file["path"]} for file in _tree(folder)]
                return self._send(json.dumps({"id": name, "sha": COMMIT, "siblings": siblings}).encode(), body)
            file = folder / path.removeprefix(f"{files}/resolve/{COMMIT}/")
            if not path.startswith(f"{files}/resolve/") or not file.is_file():
                return self._send(b"", body, 404)
            return self._send(file.read_bytes(), body)

        def _send(self, content: bytes, body: bool, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.send_header("etag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("x-repo-commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _tree(folder: Path) -> list[dict[str, Any]]:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return [
        {
            "type": "file",
            "path": file.relative_to(folder).as_posix(),
            "size": file.stat().st_size,
            "oid": hashlib.sha1(file.name.encode(), usedforsecurity=False).hexdigest(),
        }
        for file in files
    ]
