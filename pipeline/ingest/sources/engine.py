"""Documents of an index of OpenSearch or Elasticsearch, read page by page from a point in time with `search_after`.

Pages of a point in time can be requested again, so a retry loses and repeats nothing (a scroll would). OpenSearch pages
are sorted by `_id`, those of Elasticsearch by `_shard_doc`, which it has instead of a sortable `_id`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from darklode.pipeline.base.errors import DarklodeError, InputError
from darklode.pipeline.base.remote.background import Background
from darklode.pipeline.base.remote.budget import NO_USAGE
from darklode.pipeline.base.remote.call_errors import BadReply, RequestRejected, Response, ServerError
from darklode.pipeline.base.remote.client import Call, Client, Session
from darklode.pipeline.base.remote.endpoint import Endpoint, Http, key_from
from darklode.pipeline.base.types import Row, Rows
from darklode.pipeline.ingest.sources.rows import BATCH_ROWS, DayRange
from darklode.pipeline.retrieve.retrievers.engine_kind import LuceneKind

API_KEY_ENV, QUERIES = "api_key_env", "queries"
"""Options of an address: environment variable with the key, and index of the queries of a UBI log."""
DEFAULT_EVENTS, DEFAULT_QUERIES = "ubi_events", "ubi_queries"
"""Indexes of the UBI plugins. Files of other names are read as UBI if their names begin with these."""

KEEP_ALIVE = "10m"
"""How long an unused point in time stays open; a page renews it."""
TIMEOUT, RETRY_TIMEOUT = 60.0, 600.0
MAX_BAD_REPLIES = 6
SECTION = "source"
"""Where messages of the client look for settings; a source has options of its address instead."""
ID, SOURCE = "_id", "_source"
OWN_ID = f"{SOURCE}.doc_id"
"""Name of a document's own field `doc_id`: the document's id in the engine is `doc_id`."""


@dataclass(frozen=True)
class EngineApi:
    """Where OpenSearch and Elasticsearch differ.

    Attributes:
        open_path: path that opens a point in time of an index.
        id_field: its id in the reply.
        close_path: path that closes it.
        tiebreaker: field whose values are unique in a point in time.
        auth_header: header that carries a key.
    """

    open_path: str
    id_field: str
    close_path: str
    tiebreaker: str
    auth_header: str

    def close_body(self, point: str) -> bytes:
        """The body that closes a point in time."""
        return json.dumps({self.id_field: [point] if self.id_field == "pit_id" else point}).encode()


APIS = {
    "opensearch": EngineApi(
        "/{index}/_search/point_in_time", "pit_id", "/_search/point_in_time", ID, "Authorization: Bearer {key}"
    ),
    "elasticsearch": EngineApi("/{index}/_pit", "id", "/_pit", "_shard_doc", "Authorization: ApiKey {key}"),
}


@dataclass(frozen=True)
class EngineAddress:
    """Indexes of an engine.

    Attributes:
        kind: opensearch or elasticsearch.
        base_url: URL of the server.
        index: index, alias or pattern of the documents, queries or events.
        queries: index of the queries of a UBI log; empty: the log is one index.
        api_key_env: environment variable with the key, or `user:password`; empty: none is sent.
    """

    kind: str
    base_url: str
    index: str
    queries: str
    api_key_env: str

    @property
    def api(self) -> EngineApi:
        """The engine's paths."""
        return APIS[self.kind]


def parse_engine(address: str, *, is_log: bool = False) -> EngineAddress:
    """The parts of an address such as `opensearch+https://host:9200/products?api_key_env=SHOP_SEARCH`.

    A log without an index is that of the UBI plugins; `shop_ubi_events` has its queries in `shop_ubi_queries`, unless
    the address has `?queries=INDEX`.

    Raises:
        InputError: the address is invalid or names no index.
    """
    parts = urlsplit(address)
    kind, _, scheme = parts.scheme.partition("+")
    if scheme not in {"http", "https"}:
        raise InputError(f"{parts.scheme}://…: begin the address with {kind}+https:// or {kind}+http://")
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if unknown := options.keys() - {API_KEY_ENV, QUERIES}:
        raise InputError(f"{kind} address: unknown option {sorted(unknown)[0]}; there are {API_KEY_ENV} and {QUERIES}")
    path, _, index = parts.path.strip("/").rpartition("/")
    index = index or (DEFAULT_EVENTS if is_log else "")
    if not index:
        raise InputError(f"{parts.netloc}: the address names no index; add it after the host, such as /products")
    queries = options.get(QUERIES, index.replace("events", "queries") if is_log and "events" in index else "")
    base_url = f"{scheme}://{parts.netloc}" + (f"/{path}" if path else "")
    return EngineAddress(kind, base_url, index, queries if is_log else "", options.get(API_KEY_ENV, ""))


class EngineTable:
    """Documents of an index; see `RowTable`.

    Args:
        address: the engine.
        index: index, alias or pattern.
        time_column: date field of the time of an event; None: rows have no day.
        is_documents: name the document by the engine's id, not by its own field `doc_id`.
        max_seconds: seconds of failed retries after which it gives up.

    Raises:
        MissingPart: the key is missing.
    """

    def __init__(
        self,
        address: EngineAddress,
        index: str,
        time_column: str | None = None,
        *,
        is_documents: bool = False,
        max_seconds: float = RETRY_TIMEOUT,
    ) -> None:
        self.time_column, self._is_documents = time_column, is_documents
        self._address, self._index, self._max_seconds = address, quote(index, safe=",*"), max_seconds
        key_from(address.api_key_env, f"index {index} at {urlsplit(address.base_url).netloc}")
        self._search = Client(self._endpoint("/_search"))

    def _endpoint(self, path: str) -> Endpoint:
        return Endpoint(
            section=SECTION,
            model=f"index {self._index}",
            base_urls=(self._address.base_url,),
            path=path,
            api_key_env=self._address.api_key_env,
            max_concurrency=1,
            timeout=TIMEOUT,
            retry_timeout=self._max_seconds,
            auth_header=self._address.api.auth_header,
            basic_auth=True,
        )

    def version(self) -> str | None:
        """Version of the index, which every write changes; None if the engine does not tell (`_stats`)."""
        with Background() as background:
            response = background.run(self._get(f"/{self._index}/_stats?level=shards"), lambda: None)
        if response is None or response.status != 200:
            return None
        with suppress(ValueError, LookupError, TypeError, AttributeError):
            return LuceneKind.read_version(json.loads(response.content))
        return None

    async def _get(self, path: str) -> Response | None:
        async with self._search.session() as session:
            return (await session.probe(path))[0]

    def batches(self, days: DayRange, limit: int | None = None) -> Iterator[Rows]:
        """See `RowTable`.

        Raises:
            DarklodeError: the engine rejects a request, or has not answered for `max_seconds` seconds.
        """
        try:
            with Background() as background:
                yield from background.iterate(self._pages(days, limit))
        except DarklodeError as error:
            raise type(error)(_without_settings(str(error))) from None

    async def _pages(self, days: DayRange, limit: int | None) -> AsyncGenerator[Rows]:
        point = await self._open()
        try:
            async with self._search.session() as session:
                last: list[Any] | None = None
                n_rows = 0
                while limit is None or n_rows < limit:
                    hits, point = await self._page(session, self._request(point, days, last))
                    if not hits:
                        return
                    yield [_row(hit, is_document=self._is_documents) for hit in hits]
                    n_rows, last = n_rows + len(hits), hits[-1]["sort"]
        finally:
            await self._close(point)

    def _request(self, point: str, days: DayRange, last: list[Any] | None) -> dict[str, Any]:
        """The body of a search: the page after the sort values `last`, or the first."""
        tiebreaker = {self._address.api.tiebreaker: "asc"}
        first_day, end_day = days.bounds
        limits = {"gte": first_day and f"{first_day}T00:00:00Z", "lt": end_day and f"{end_day}T00:00:00Z"}
        given = {name: value for name, value in limits.items() if value}
        is_dated = self.time_column is not None
        query = {"range": {self.time_column: given}} if is_dated and given else {"match_all": {}}
        return {
            "size": BATCH_ROWS,
            "query": query,
            "sort": [{self.time_column: "asc"}, tiebreaker] if is_dated else [tiebreaker],
            "pit": {"id": point, "keep_alive": KEEP_ALIVE},
            "track_total_hits": False,
            **({"search_after": last} if last else {}),
        }

    async def _page(self, session: Session, body: dict[str, Any]) -> tuple[list[Row], str]:
        """The hits of a page, and the point in time for the next one."""

        def read(reply: Mapping[str, Any]) -> tuple[list[Row], str]:
            if problem := LuceneKind.reply_problem(reply):
                raise BadReply(problem)
            hits = reply.get("hits")
            listed = hits.get("hits") if isinstance(hits, dict) else None
            if not isinstance(listed, list) or not all(_is_hit(hit) for hit in listed):
                raise BadReply("has no hits with _id, _source and sort")
            return listed, str(reply.get("pit_id") or body["pit"]["id"])

        page: tuple[list[Row], str] = await self._call(session, body, read)
        return page

    async def _open(self) -> str:
        path = self._address.api.open_path.replace("{index}", self._index)
        client = Client(self._endpoint(f"{path}?keep_alive={KEEP_ALIVE}"))

        def read(reply: Mapping[str, Any]) -> str:
            point = reply.get(self._address.api.id_field)
            if not isinstance(point, str):
                raise BadReply(f"has no {self._address.api.id_field}")
            return point

        async with client.session() as session:
            opened: str = await self._call(session, None, read)
        return opened

    async def _call(self, session: Session, body: dict[str, Any] | None, read: Any) -> Any:
        content = b"" if body is None else json.dumps(body).encode()
        tries = {BadReply: MAX_BAD_REPLIES, ServerError: MAX_BAD_REPLIES}
        try:
            return await session.call(Call(content, NO_USAGE, f"index {self._index}", read, tries))
        except RequestRejected as error:
            raise DarklodeError(f"{self._search.endpoint.name}: {error}; check the index and its address") from None

    async def _close(self, point: str) -> None:
        """Close the point in time; if that fails, it expires."""
        endpoint = self._search.endpoint
        http = Http(endpoint.base_urls, endpoint.headers(endpoint.key()), endpoint.timeout, endpoint.section)
        try:
            with suppress(Exception):
                url = f"{endpoint.base_urls[0]}{self._address.api.close_path}"
                await http.delete(url, self._address.api.close_body(point))
        finally:
            await http.close()


def _without_settings(message: str) -> str:
    """A message of the client of remote models, about a source."""
    message = re.sub(rf"\b{SECTION}\.base_url( and the model or index)?", "the address", message)
    return message.replace(f" ({SECTION}.retry_timeout)", "").replace(f"{SECTION}.", "")


def _is_hit(hit: Any) -> bool:
    return isinstance(hit, dict) and all(
        isinstance(hit.get(name), kind) for name, kind in ((ID, str), (SOURCE, dict), ("sort", list))
    )


def _row(hit: Row, *, is_document: bool) -> Row:
    """A hit as a row: its id and its fields; a document's id is its `doc_id`, too."""
    fields = dict(hit[SOURCE])
    if not is_document:
        return {ID: hit[ID], **fields}
    own = {OWN_ID: fields.pop("doc_id")} if "doc_id" in fields else {}
    return {"doc_id": hit[ID], ID: hit[ID], **fields, **own}
