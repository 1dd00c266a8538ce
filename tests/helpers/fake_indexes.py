"""A search server on loopback with documents to search, and to read from a point in time, as OpenSearch does.

It is neither: it sorts and filters by the documented meaning of what sources need of them. Requests are checked against
the documented paths, keys and types; anything else is status 400, 404 or 405, as the engines answer.
"""

from __future__ import annotations

import copy
import json
import re
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from helpers.fake_engine import SEARCH_KEYS, Invalid, check, check_body, query_text
from helpers.loopback_server import JsonHandler, LoopbackServer

TIME_UNIT = re.compile(r"[0-9]+(d|h|m|s|ms|micros|nanos)")
RANGE_KEYS = {"gt", "gte", "lt", "lte", "format", "time_zone", "boost"}
PIT_SEARCH_KEYS = SEARCH_KEYS | {"pit", "search_after"}
OPENSEARCH, ELASTICSEARCH = "opensearch", "elasticsearch"

Document = dict[str, Any]
Script = Callable[[int], str | None]
"""From a request's number, from 1, to the fault it meets; None: it is served."""


class FakeIndexes(LoopbackServer):
    """Serves the indexes while its context is open.

    Attributes:
        url: base URL.
        indexes: documents by id, by name of the index.
        points: documents of each open point in time, with the name of its index.
        closed: ids of closed points in time.
        requests: method, path and body of each request.
        authorization: header that requests must have; None: any.
        has_stats: whether the user may read `_stats`.
    """

    def __init__(
        self, indexes: Mapping[str, Mapping[str, Document]], engine: str = OPENSEARCH, script: Script | None = None
    ) -> None:
        self.indexes = {name: dict(documents) for name, documents in indexes.items()}
        self.engine, self.script = engine, script or (lambda _number: None)
        self.points: dict[str, dict[str, Document]] = {}
        self.closed: list[str] = []
        self.requests: list[tuple[str, str, Any]] = []
        self.authorization: str | None = None
        self.has_stats = True
        super().__init__(type("Handler", (_Handler,), {"fake": self}))
        self.url = self.address

    @property
    def searches(self) -> list[Any]:
        """Bodies of the searches."""
        return [body for _, path, body in self.requests if path == "/_search"]

    def open_point(self, pattern: str, options: Mapping[str, str]) -> dict[str, Any]:
        """Open a point in time of the indexes that match a pattern."""
        check(set(options) <= {"keep_alive", "routing", "preference", "expand_wildcards"}, f"unknown {set(options)}")
        check(TIME_UNIT.fullmatch(options.get("keep_alive", "")) is not None, "[keep_alive] must be specified")
        names = [name for name in self.indexes if any(fnmatchcase(name, part) for part in pattern.split(","))]
        if not names:
            raise LookupError(pattern)
        point = f"point-{len(self.points) + len(self.closed)}"
        documents = {key: document for name in names for key, document in self.indexes[name].items()}
        self.points[point] = copy.deepcopy(documents)
        return {"pit_id": point} if self.engine == OPENSEARCH else {"id": point, "_shards": {"failed": 0}}

    def search(self, body: Document) -> dict[str, Any]:
        """A page of a point in time."""
        check(set(body) <= PIT_SEARCH_KEYS, f"unknown key for a search: {set(body) - PIT_SEARCH_KEYS}")
        check(set(body.get("pit", {})) == {"id", "keep_alive"}, "pit has an id and a keep_alive")
        check(TIME_UNIT.fullmatch(body["pit"]["keep_alive"]) is not None, "keep_alive is no time")
        check("from" not in body or "search_after" not in body, "[from] must be 0 with [search_after]")
        size = body.get("size", 10)
        check(isinstance(size, int) and 0 <= size <= 10_000, f"size is {size!r}: index.max_result_window is 10000")
        if body["pit"]["id"] not in self.points:
            raise LookupError(f"No search context found for id [{body['pit']['id']}]")
        order = self._order(body.get("sort", []))
        after = body.get("search_after")
        check(after is None or (isinstance(after, list) and len(after) == len(order)), "search_after fits not the sort")
        documents = self.points[body["pit"]["id"]]
        keyed = sorted(
            ([_sort_value(field, key, number, document) for field in order], key)
            for number, (key, document) in enumerate(documents.items())
            if _matches(body.get("query", {"match_all": {}}), document)
        )
        page = [(values, key) for values, key in keyed if after is None or values > after][:size]
        hits = [{"_id": key, "_score": None, "_source": documents[key], "sort": values} for values, key in page]
        return {
            "pit_id": body["pit"]["id"],
            "timed_out": False,
            "_shards": {"total": 1, "successful": 1, "failed": 0},
            "hits": {"hits": hits},
        }

    def rank(self, index: str, body: Document) -> dict[str, Any]:
        """Documents of an index by the number of a query's words in their strings, as a search engine's own ranking."""
        check_body(body)
        words = set(query_text(body["query"]).lower().split())
        texts = {
            key: " ".join(value for value in document.values() if isinstance(value, str)).lower()
            for key, document in self.indexes[index].items()
        }
        counts = {key: len(words & set(text.split())) for key, text in texts.items()}
        best = sorted((key for key in counts if counts[key]), key=lambda key: (-counts[key], key))[
            : body.get("size", 10)
        ]
        hits = [{"_index": index, "_id": key, "_score": float(counts[key])} for key in best]
        shards = {"total": 1, "successful": 1, "failed": 0}
        return {"took": 1, "timed_out": False, "_shards": shards, "hits": {"hits": hits}}

    def _order(self, sort: Any) -> list[str]:
        check(isinstance(sort, list), "sort is no list")
        fields = []
        for part in sort:
            ((field, order),) = part.items() if isinstance(part, dict) else ((part, "asc"),)
            check(order in ("asc", {"order": "asc"}), f"sort order {order!r}")
            check(field != "_shard_doc" or self.engine == ELASTICSEARCH, "No mapping found for [_shard_doc]")
            check(field != "_id" or self.engine == OPENSEARCH, "Fielddata access on the _id field is disallowed")
            fields.append(field)
        return fields

    def close_points(self, body: Document) -> None:
        """Close points in time."""
        key = "pit_id" if self.engine == OPENSEARCH else "id"
        check(set(body) == {key}, f"a body with {key}")
        ids = body[key] if isinstance(body[key], list) else [body[key]]
        check(isinstance(body[key], list) or self.engine == ELASTICSEARCH, "pit_id is a list")
        for point in ids:
            del self.points[point]
            self.closed.append(point)

    def stats(self, index: str) -> dict[str, Any]:
        """`GET /index/_stats?level=shards`, what of it is read; the sequence number is that of the content."""
        number = sum(map(ord, json.dumps(self.indexes[index], sort_keys=True)))
        copies = [{"routing": {"primary": True, "state": "STARTED"}, "seq_no": {"max_seq_no": number}}]
        return {"_shards": {"failed": 0}, "indices": {index: {"uuid": f"uuid-of-{index}", "shards": {"0": copies}}}}


def _sort_value(field: str, key: str, number: int, document: Document) -> Any:
    if field == "_id":
        return key
    return number if field == "_shard_doc" else _milliseconds(document.get(field))


def _milliseconds(value: Any) -> int:
    """A date field's sort value; a missing one sorts last."""
    if value is None:
        return 2**63 - 1
    if isinstance(value, int):
        return value
    moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)


def _matches(query: Any, document: Document) -> bool:
    check(isinstance(query, dict) and len(query) == 1, "a query has one clause")
    ((name, value),) = query.items()
    if name == "match_all":
        return True
    check(name == "range", f"unknown query [{name}]")
    ((field, limits),) = value.items()
    check(set(limits) <= RANGE_KEYS, f"unknown key of range: {set(limits) - RANGE_KEYS}")
    if document.get(field) is None:
        return False
    time = _milliseconds(document[field])
    return time >= _milliseconds(limits.get("gte", 0)) and time < _milliseconds(limits.get("lt"))


class _Handler(JsonHandler):
    fake: FakeIndexes

    def serve(self) -> None:
        fake, parts, method = self.fake, urlsplit(self.path), self.command
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.loads(content) if content else None
        fake.requests.append((method, parts.path, body))
        fault = fake.script(len(fake.requests))
        if fake.authorization and self.headers.get("authorization") != fake.authorization:
            return self._error(401, "missing authentication credentials")
        if fault == "hang up":
            self.connection.shutdown(socket.SHUT_RDWR)
            return None
        if fault:
            return self._error(int(fault), "es_rejected_execution_exception")
        try:
            options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            reply = self._reply(method, unquote(parts.path).strip("/").split("/"), options, body)
        except Invalid as problem:
            return self._error(400, str(problem))
        except LookupError as problem:
            return self._error(404, f"not found: {problem}")
        product = {"X-Elastic-Product": "Elasticsearch"} if fake.engine == ELASTICSEARCH else {}
        return self.answer(200, json.dumps(reply).encode(), product)

    do_GET = do_POST = do_DELETE = serve  # noqa: N815

    def _reply(self, method: str, path: list[str], options: Mapping[str, str], body: Any) -> Any:
        fake = self.fake
        is_opensearch = fake.engine == OPENSEARCH
        if method == "POST" and path[1:] == (["_search", "point_in_time"] if is_opensearch else ["_pit"]):
            check(body is None or set(body) <= {"index_filter"}, "a point in time has no body")
            return fake.open_point(path[0], options)
        if method in {"POST", "GET"} and path == ["_search"]:
            return fake.search(body)
        if method == "POST" and path[1:] == ["_search"] and path[0] in fake.indexes:
            return fake.rank(path[0], body)
        if method == "DELETE" and path == (["_search", "point_in_time"] if is_opensearch else ["_pit"]):
            fake.close_points(body)
            return {"succeeded": True}
        if method == "GET" and path[1:] == ["_stats"] and fake.has_stats and path[0] in fake.indexes:
            return fake.stats(path[0])
        raise LookupError("/".join(path))

    def _error(self, status: int, reason: str) -> None:
        self.answer(status, json.dumps({"error": {"reason": reason}, "status": status}).encode())
