"""A search engine behind HTTP with JSON requests and replies, called with the one client of remote servers."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote.background import Background
from darklode.pipeline.base.remote.budget import NO_USAGE
from darklode.pipeline.base.remote.call_errors import BadReply, RequestRejected, Response, ServerError
from darklode.pipeline.base.remote.client import Call, Client, Lane
from darklode.pipeline.base.remote.endpoint import Endpoint
from darklode.pipeline.retrieve.retrievers.external import Answer, LiveSearch
from darklode.pipeline.retrieve.retrievers.json_template import fill, value_at

MAX_BAD_REPLIES = 6
"""Invalid replies, or status 500, to one query after which it counts as failed."""


@dataclass(frozen=True)
class ReplyFormat:
    """Where an engine's reply has its hits.

    Attributes:
        hits_path, id_path, score_path: path of the list, and of id and score in a hit.
        is_list_optional: a reply without the list has no hits.
        problem: what makes a reply with status 200 incomplete, as a predicate; empty if it is complete.
    """

    hits_path: str
    id_path: str
    score_path: str
    is_list_optional: bool = False
    problem: Callable[[Mapping[str, Any]], str] = lambda _reply: ""

    def read(self, reply: Mapping[str, Any]) -> Answer:
        """The ids and scores of a reply; a hit without a score has the reciprocal of its rank.

        Raises:
            BadReply: the reply is incomplete, has no list, or a hit has no id.
        """
        if problem := self.problem(reply):
            raise BadReply(problem)
        hits = value_at(reply, self.hits_path)
        if hits is None and self.is_list_optional:
            hits = []
        if not isinstance(hits, list):
            raise BadReply(f"has no list at {self.hits_path}")
        ids, scores = [], []
        for rank, hit in enumerate(hits, 1):
            name, score = value_at(hit, self.id_path), value_at(hit, self.score_path)
            if isinstance(name, bool) or not isinstance(name, str | int):
                raise BadReply(f"has no id at {self.id_path} of hit {rank}")
            is_number = isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score)
            ids.append(str(name))
            scores.append(float(score) if is_number else 1 / rank)
        return ids, scores


@dataclass(frozen=True)
class IndexVersion:
    """How the version of an index is known.

    Attributes:
        fixed: version by the settings; it precedes the engine's.
        path: path of a GET request for the engine's; empty: there is none.
        read: reads the version from its reply; None if it has none.
    """

    fixed: str | None = None
    path: str = ""
    read: Callable[[Mapping[str, Any]], str | None] = lambda _reply: None


NO_VERSION = IndexVersion()


class HttpSearch(LiveSearch):
    """An engine's search endpoint.

    Args:
        endpoint: server, path, key and limits; `model` is the name in messages.
        request: template of the requests.
        reply_format: where the replies have their hits.
        tenant: value of the placeholder `{tenant}`.
        index_version: how the version of the index is known.

    Raises:
        MissingPart: the key is missing.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        request: JsonValue,
        reply_format: ReplyFormat,
        tenant: str,
        index_version: IndexVersion = NO_VERSION,
    ) -> None:
        self.where = endpoint.name
        self._client, self._request, self._format, self._tenant = Client(endpoint), request, reply_format, tenant
        self._index_version = index_version

    def version(self) -> str | None:
        """See `LiveSearch`: that of the settings, else the engine's."""
        if self._index_version.fixed is not None or not self._index_version.path:
            return self._index_version.fixed
        with Background() as background:
            response = background.run(self._get(self._index_version.path), lambda: None)
        if response is None or response.status != 200:
            return None
        try:
            return self._index_version.read(json.loads(response.content))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    async def _get(self, path: str) -> Response | None:
        async with self._client.session() as session:
            return (await session.probe(path))[0]

    def search(self, queries: Sequence[str], k: int) -> Iterator[tuple[int, Answer]]:
        """See `LiveSearch`. Transient failures are retried; answers in flight are kept if a call fails for good.

        Raises:
            DarklodeError: the engine rejects a query, or has not answered for `retry_timeout` seconds.
        """
        with Background() as background:
            for answers in background.iterate(self._answers(queries, k)):
                yield from answers

    async def _answers(self, queries: Sequence[str], k: int) -> AsyncGenerator[list[tuple[int, Answer]]]:
        async def work(number: int, lane: Lane) -> tuple[int, Answer]:
            return number, await self._answer(queries[number], k, lane)

        async with (
            self._client.session() as session,
            aclosing(session.results(([number] for number in range(len(queries))), work)) as results,
        ):
            async for answers in results:
                yield answers

    async def _answer(self, query: str, k: int, lane: Lane) -> Answer:
        values: dict[str, str | int] = {"query": query, "k": k, "tenant": self._tenant}
        body = json.dumps(fill(self._request, values)).encode()
        name = f"query {query[:60]!r}"
        tries = {BadReply: MAX_BAD_REPLIES, ServerError: MAX_BAD_REPLIES}
        try:
            return await lane.call(Call(body, NO_USAGE, name, self._format.read, tries))
        except RequestRejected as error:
            section = self._client.endpoint.section
            raise DarklodeError(
                f"{self.where}: {name} failed, {error}. Check {section}.request, hits_path and id_path; answers so "
                "far are kept"
            ) from None
