"""A search server on loopback with OpenSearch's `_search` and `_stats`, strict on what it is sent, and with faults.

It is no OpenSearch: it ranks by the number of common words. Requests are checked against the documented keys of the
search body and of a few queries; another key is status 400, as OpenSearch answers.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from helpers.loopback_server import JsonHandler, LoopbackServer

Script = Callable[[int], str | None]
"""From a search's number, from 1, to the fault it meets; None: it is served."""

SEARCH_KEYS = {"query", "size", "from", "_source", "track_total_hits", "timeout", "sort", "min_score", "fields"}
CLAUSE_KEYS = {
    "match": {"query", "operator", "minimum_should_match", "fuzziness", "boost"},
    "multi_match": {"query", "fields", "type", "operator", "tie_breaker", "boost"},
    "bool": {"must", "should", "filter", "must_not", "minimum_should_match"},
    "term": {"value", "boost"},
}


class Invalid(Exception):
    """A request that the schema does not have."""


def check(condition: bool, problem: str) -> None:
    if not condition:
        raise Invalid(problem)


def check_body(body: Any) -> None:
    """Check the body of a search.

    Raises:
        Invalid: a key or type that is not documented.
    """
    check(isinstance(body, dict), "the body is no object")
    check(set(body) <= SEARCH_KEYS, f"unknown key for a search: {set(body) - SEARCH_KEYS}")
    size = body.get("size", 10)
    check(isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= 10_000, f"size is {size!r}")
    check_clause(body.get("query"))


def check_clause(clause: Any) -> None:
    check(isinstance(clause, dict) and len(clause) == 1, "a query has one clause")
    ((name, value),) = clause.items()
    check(name in CLAUSE_KEYS, f"unknown query [{name}]")
    if name == "bool":
        check(set(value) <= CLAUSE_KEYS["bool"], "unknown key of bool")
        for key in ("must", "should", "filter", "must_not"):
            inner = value.get(key, [])
            for one in inner if isinstance(inner, list) else [inner]:
                check_clause(one)
        return
    parameters = value if name == "multi_match" else next(iter(value.values()))
    check(name == "multi_match" or len(value) == 1, f"{name} has one field")
    if isinstance(parameters, dict):
        check(set(parameters) <= CLAUSE_KEYS[name], f"unknown key of {name}")
    else:
        check(isinstance(parameters, str), f"{name} needs a text")


def query_text(clause: Mapping[str, Any]) -> str:
    """The text that a query looks for."""
    ((name, value),) = clause.items()
    if name == "bool":
        inner = value.get("must", value.get("should"))
        return query_text(inner[0] if isinstance(inner, list) else inner)
    if name == "multi_match":
        return str(value["query"])
    parameters = next(iter(value.values()))
    return str(parameters["query"] if isinstance(parameters, dict) else parameters)


class FakeEngine(LoopbackServer):
    """Serves the indexes while its context is open.

    Attributes:
        url: base URL.
        indexes: documents by id, by name of the index.
        searches: bodies of the searches, those with faults too.
        paths: their paths.
        headers: headers of every request.
        sequence_number: rises with every write to an index.
    """

    def __init__(self, indexes: Mapping[str, Mapping[str, str]], script: Script | None = None) -> None:
        self.indexes = {name: dict(documents) for name, documents in indexes.items()}
        self.script = script or (lambda _number: None)
        self.searches: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.served: list[str] = []
        self.authorization: str | None = None
        self.has_stats = True
        self.sequence_number = 7
        self.lock = threading.Lock()
        super().__init__(type("Handler", (_Handler,), {"fake": self}))
        self.url = self.address

    def hits(self, index: str, text: str, size: int) -> list[dict[str, Any]]:
        """Documents by the number of words that they share with the text."""
        words = set(text.lower().split())
        counts = {name: len(words & set(body.lower().split())) for name, body in self.indexes[index].items()}
        best = sorted((name for name in counts if counts[name]), key=lambda name: (-counts[name], name))[:size]
        return [{"_index": index, "_id": name, "_score": float(counts[name])} for name in best]

    def reply(self, index: str, body: dict[str, Any], fault: str | None) -> dict[str, Any]:
        """The reply to a search."""
        text = query_text(body["query"])
        hits = self.hits(index, text, body.get("size", 10))
        with self.lock:
            self.served.append(text)
        shards = {"total": 2, "successful": 2, "skipped": 0, "failed": 0}
        reply = {"took": 1, "timed_out": False, "_shards": shards, "hits": {"max_score": None, "hits": hits}}
        if fault == "shard failed":
            shards |= {"successful": 1, "failed": 1}
        if fault == "timed out":
            reply["timed_out"] = True
        if fault == "no ids":
            reply["hits"] = {"hits": [{"_score": 1.0}]}
        return reply

    def stats(self, index: str) -> dict[str, Any]:
        """`GET /index/_stats?level=shards`, what of it is read."""

        def copy(primary: bool, number: int) -> dict[str, Any]:
            return {"routing": {"primary": primary, "state": "STARTED"}, "seq_no": {"max_seq_no": number}}

        shards = {"0": [copy(True, self.sequence_number), copy(False, self.sequence_number - 1)], "1": [copy(True, 3)]}
        return {"_shards": {"failed": 0}, "indices": {index: {"uuid": f"uuid-of-{index}", "shards": shards}}}


class _Handler(JsonHandler):
    fake: FakeEngine

    def serve_get(self) -> None:
        fake, (index, _, rest) = self.fake, self.path.lstrip("/").partition("/")
        index = unquote(index)
        fake.headers.append(self.lower_headers())
        if rest == "_stats?level=shards" and index in fake.indexes and fake.has_stats:
            self.answer(200, json.dumps(fake.stats(index)).encode())
        else:
            self.answer(404, b'{"error": {"reason": "no such index"}, "status": 404}')

    def serve_post(self, body: dict[str, Any]) -> None:
        fake = self.fake
        index, _, rest = self.path.lstrip("/").partition("/")
        index = unquote(index)
        with fake.lock:
            fake.searches.append(body)
            fake.paths.append(self.path)
            fake.headers.append(self.lower_headers())
            fault = fake.script(len(fake.searches))
        if fake.authorization and self.headers.get("authorization") != fake.authorization:
            self.answer(401, b'{"error": {"reason": "missing authentication credentials"}, "status": 401}')
        elif fault in {"429", "503"}:
            self.answer(int(fault), b'{"error": {"reason": "es_rejected_execution_exception"}}')
        elif fault == "hang":
            fake.closing.wait(5)
            self.connection.shutdown(socket.SHUT_RDWR)
        elif fault == "html":
            self.answer(200, b"<html><body>Sign in</body></html>")
        elif rest != "_search" or index not in fake.indexes:
            reason = {"type": "index_not_found_exception", "reason": f"no such index [{index}]"}
            self.answer(404, json.dumps({"error": reason, "status": 404}).encode())
        else:
            self._search(fake, index, body, fault)

    def _search(self, fake: FakeEngine, index: str, body: dict[str, Any], fault: str | None) -> None:
        try:
            check_body(body)
        except Invalid as problem:
            reason = {"type": "parsing_exception", "reason": str(problem)}
            self.answer(400, json.dumps({"error": reason, "status": 400}).encode())
            return
        content = json.dumps(fake.reply(index, body, fault)).encode()
        if fault == "truncated":
            self.answer(200, content[: len(content) // 2], {"content-length": str(len(content))})
            self.close_connection = True
        else:
            self.answer(200, content[:-1] if fault == "malformed" else content)


class ScriptedReplies(LoopbackServer):
    """Answers every POST with a reply made from its body, and keeps path, headers and body of each.

    Attributes:
        url: base URL.
        requests: path, headers in lower case, and body of each request.
    """

    def __init__(self, reply: Callable[[dict[str, Any]], object]) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        requests = self.requests

        class Handler(JsonHandler):
            def serve_post(self, body: dict[str, Any]) -> None:
                requests.append((self.path, self.lower_headers(), body))
                self.answer(200, json.dumps(reply(body)).encode())

        super().__init__(Handler)
        self.url = self.address
