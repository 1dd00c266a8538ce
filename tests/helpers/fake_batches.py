"""A chat server on loopback that answers files of calls, too: OpenAI's endpoints for files and batches, with faults."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from helpers.fake_chat import FakeChat


@dataclass
class FakeBatches(FakeChat):
    """Answers a batch when the test says so; what it was given and what it began can be looked at.

    Attributes:
        files: content by id.
        batches: by id, the oldest first, as the service describes them.
        fault: names what happens to a request, by method and path: a status, "dropped" before anything is done, or
            "lost", which does it and drops the connection in the place of a reply; "cut" sends half of the reply;
            "hang" does it and says nothing.
        page: batches on a page of the list.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    fault: Callable[[str, str], str | None] | None = None
    page: int = 2

    def handle(self, connection: Any, method: str, path: str, headers: dict[str, str], content: bytes) -> None:
        """Answer one request."""
        where = urlsplit(path)
        if not where.path.startswith(("/v1/files", "/v1/batches")):
            super().handle(connection, method, path, headers, content)
            return
        fault = self.fault(method, where.path) if self.fault else None
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            connection.answer(401, {"error": {"message": f"wrong key {headers.get('authorization')}"}})
        elif fault == "dropped":
            connection.drop()
        elif fault and fault.isdigit():
            connection.answer(int(fault), {"error": {"message": "not now"}})
        else:
            status, said = self._done(method, where.path, parse_qs(where.query), headers, content)
            if fault == "lost":
                connection.drop()
            elif fault == "cut":
                connection.cut((said if isinstance(said, str) else json.dumps(said)).encode())
            elif fault != "hang":
                connection.answer(status, said)

    def _done(
        self, method: str, path: str, query: dict[str, list[str]], headers: dict[str, str], content: bytes
    ) -> tuple[int, Any]:
        parts = path.removeprefix("/v1/").split("/")
        if (method, parts) == ("POST", ["files"]):
            return 200, self._uploaded(headers["content-type"], content)
        if (method, parts) == ("POST", ["batches"]):
            return 200, self._begun(json.loads(content))
        if (method, parts) == ("GET", ["batches"]):
            return 200, self._listed(query)
        if parts[0] == "batches" and parts[1] in self.batches:
            return 200, self.batches[parts[1]]
        if parts[0] == "files" and parts[1] in self.files and parts[2:] == ["content"]:
            return 200, self.files[parts[1]].decode()
        return 404, {"error": {"message": f"no {path}"}}

    def _uploaded(self, kind: str, content: bytes) -> dict[str, Any]:
        boundary = kind.partition("boundary=")[2].strip('"').encode()
        parts = {}
        for part in content.split(b"--" + boundary)[1:-1]:
            head, _, body = part.partition(b"\r\n\r\n")
            name = re.search(rb' name="(\w+)"', head)
            assert name
            parts[name[1]] = body.removesuffix(b"\r\n")
        assert parts[b"purpose"] == b"batch"
        return self._file(parts[b"file"])

    def _file(self, content: bytes) -> dict[str, Any]:
        file_id = f"file-{len(self.files)}"
        self.files[file_id] = content
        about = {"id": file_id, "object": "file", "bytes": len(content), "created_at": 1, "filename": "f"}
        return about | {"purpose": "batch", "status": "processed"}

    def _begun(self, asked: dict[str, Any]) -> dict[str, Any]:
        calls = len(self.files[asked["input_file_id"]].splitlines())
        batch: dict[str, Any] = {"id": f"batch-{len(self.batches)}", "object": "batch", "status": "in_progress"}
        batch |= {"created_at": 1 << 40, "request_counts": {"total": calls, "completed": 0, "failed": 0}, **asked}
        self.batches[batch["id"]] = batch
        return batch

    def _listed(self, query: dict[str, list[str]]) -> dict[str, Any]:
        newest = list(self.batches)[::-1]
        start = newest.index(query["after"][0]) + 1 if "after" in query else 0
        shown = [self.batches[name] for name in newest[start : start + self.page]]
        last = shown[-1]["id"] if shown else None
        return {"object": "list", "data": shown, "last_id": last, "has_more": start + self.page < len(newest)}

    def finish_all(self) -> None:
        """Answer every batch's calls."""
        for name in self.batches:
            self.finish(name)

    def finish(self, batch_id: str, status: str = "completed", failing: int = 0) -> None:
        """Answer a batch's calls, the last first; the first of them fail, or expire where the batch does."""
        batch = self.batches[batch_id]
        calls = [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]
        good = [
            _line(call, {"status_code": 200, "body": self.completion(call["body"], _pair(call))}, None)
            for call in calls[failing:][::-1]
        ]
        refused = [
            _line(call, {"status_code": 400, "body": {"error": {"message": "no"}}}, None) for call in calls[:failing]
        ]
        late = [_line(call, None, {"code": "batch_expired", "message": "late"}) for call in calls[:failing]]
        bad = late if status == "expired" else refused
        batch["status"] = status
        batch["request_counts"] |= {"completed": len(good), "failed": len(bad)}
        for name, lines in (("output_file_id", good), ("error_file_id", bad)):
            batch[name] = self._file("\n".join(lines).encode())["id"] if lines else None

    def fail(self, batch_id: str, message: str) -> None:
        """Refuse a batch as a whole."""
        self.batches[batch_id] |= {"status": "failed", "errors": {"object": "list", "data": [{"message": message}]}}


def _pair(call: dict[str, Any]) -> str:
    said: str = call["body"]["messages"][-1]["content"]
    return said


def _line(call: dict[str, Any], response: dict[str, Any] | None, error: dict[str, Any] | None) -> str:
    return json.dumps({"custom_id": call["custom_id"], "response": response, "error": error})
