"""Hubs on loopback, by the hub's own protocol: one serves a folder as a model, one takes datasets."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml

from helpers.loopback_server import JsonHandler, LoopbackServer

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


@dataclass
class DatasetHub:
    """A hub that takes datasets.

    Attributes:
        token: the token that it asks for.
        address: for HF_ENDPOINT, while `dataset_hub` runs.
        datasets: files of each dataset.
        private: whether each dataset is private.
        commits: files added and deleted by each commit.
        objects: large files, by SHA-256.
    """

    token: str
    address: str = ""
    datasets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    commits: list[tuple[set[str], set[str]]] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        """Status and JSON of a request."""
        match method, path.strip("/").split("/"):
            case "PUT", ["objects", oid]:
                if hashlib.sha256(body).hexdigest() != oid:
                    return 400, {"error": "wrong SHA-256"}
                self.objects[oid] = body
                return 200, {}
            case "POST", ["api", "repos", "create"]:
                return self._create(json.loads(body))
            case "POST", ["api", "validate-yaml"]:
                return 200, {"errors": _card_errors(json.loads(body)["content"]), "warnings": []}
            case "POST", ["datasets", _, _, "info", "lfs", "objects", "batch"]:
                return 200, {
                    "transfer": "basic",
                    "objects": [self._upload(each) for each in json.loads(body)["objects"]],
                }
            case _, ["api", "datasets", owner, name, *rest] if f"{owner}/{name}" in self.datasets:
                return self._serve(f"{owner}/{name}", rest, body)
        return 404, {"error": "not found"}

    def _create(self, asked: dict[str, str]) -> tuple[int, object]:
        name = f"{asked['organization']}/{asked['name']}"
        assert asked["type"] == "dataset"
        answer = {"url": f"{self.address}/datasets/{name}", "id": name}
        if name in self.datasets:
            return 409, answer | {"error": "exists already"}
        self.datasets[name], self.private[name] = {}, asked["visibility"] == "private"
        return 200, answer

    def _upload(self, wanted: dict[str, object]) -> dict[str, object]:
        return wanted | {"actions": {"upload": {"href": f"{self.address}/objects/{wanted['oid']}"}}}

    def _serve(self, name: str, rest: list[str], body: bytes) -> tuple[int, object]:
        files = self.datasets[name]
        match rest:
            case [] | ["revision", "main"]:
                siblings = [{"rfilename": path} for path in files]
                return 200, {"id": name, "sha": COMMIT, "private": self.private[name], "siblings": siblings}
            case ["tree", "main", *_]:
                return 200, [_entry(path, content) for path, content in files.items()]
            case ["preupload", "main"]:
                modes = [
                    {"path": each["path"], "shouldIgnore": False}
                    | {"uploadMode": "lfs" if each["path"].endswith(".parquet") else "regular"}
                    for each in json.loads(body)["files"]
                ]
                return 200, {"files": modes}
            case ["commit", "main"]:
                return self._commit(name, [json.loads(line) for line in body.splitlines()])
        return 404, {"error": "not found"}

    def _commit(self, name: str, operations: list[dict[str, Any]]) -> tuple[int, object]:
        files, added, deleted = self.datasets[name], set[str](), set[str]()
        for operation in operations:
            value = operation["value"]
            match operation["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                    added.add(value["path"])
                case "lfsFile":
                    files[value["path"]] = self.objects[value["oid"]]
                    added.add(value["path"])
                case "deletedFile":
                    del files[value["path"]]
                    deleted.add(value["path"])
        self.commits.append((added, deleted))
        return 200, {"commitUrl": f"{self.address}/datasets/{name}/commit/{COMMIT}", "commitOid": COMMIT}


@contextmanager
def dataset_hub(token: str) -> Iterator[DatasetHub]:
    """A hub that takes datasets while the block runs."""
    hub = DatasetHub(token)

    class Handler(JsonHandler):
        def reply(self) -> None:
            body = self._body()
            path = unquote(self.path).partition("?")[0].replace(".git/", "/")
            if self.command != "PUT" and self.headers.get("authorization") != f"Bearer {hub.token}":
                status, content = 401, {"error": "Invalid credentials"}
            else:
                status, content = hub.answer(self.command, path, body)
            self.answer(status, json.dumps(content).encode())

        do_GET = do_POST = do_PUT = reply  # noqa: N815 (names of the base class)

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

    with LoopbackServer(Handler) as server:
        hub.address = server.address
        yield hub


def _card_errors(card: str) -> list[dict[str, str]]:
    """What the Hub finds wrong with a dataset card: every config needs a name and the files of its splits."""
    front = yaml.safe_load(card.split("---\n")[1])
    is_valid = front["configs"] and all(
        config["config_name"] and all(file["split"] and file["path"] for file in config["data_files"])
        for config in front["configs"]
    )
    return [] if is_valid else [{"message": "invalid configs"}]


def _entry(path: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    return {"type": "file", "path": path, "size": len(content), "oid": digest}


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
