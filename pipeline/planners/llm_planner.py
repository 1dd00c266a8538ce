"""The planner that is a language model behind an OpenAI-compatible server: one query a call, many calls at once."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from pipeline.endpoint import Transient, address, backoff, key_from, pause
from pipeline.errors import DarklodeError
from pipeline.judges.background import Background
from pipeline.judges.calls import Refused, completion_of
from pipeline.judges.counters import Counters
from pipeline.judges.http import Http
from pipeline.judges.pace import Pace
from pipeline.judges.replicas import Replica, Replicas
from pipeline.planners.llm_prompt import PlannerPrompt, planner_prompt
from pipeline.planners.llm_reply import Unreadable, importances
from pipeline.planners.planned import planned
from pipeline.planners.tokens import Tokens
from schemas.mining import PlannerSettings

ASKED_AGAIN = 3
FIRST_WAIT, LONGEST_WAIT = 0.5, 4.0
SECTION = "planner"


class LlmPlanner:
    """Asks for a JSON object of terms and importances.

    A reply that cannot be read, or gives an importance outside of 0 to 1, is asked for again, three times at most;
    then the query has no terms, and neither has one that the server refuses.

    Args:
        settings: model, server and limits.
        prompt: what the model is told.

    Attributes:
        counters: what was asked so far; `nulls` counts queries without a readable reply.
        version: names the model and the prompt.

    Raises:
        SettingsError: base_url is no address.
        MissingPart: the environment has no key of the name that is set.
    """

    def __init__(self, settings: PlannerSettings, prompt: PlannerPrompt | None = None) -> None:
        self._settings = settings
        self._prompt = prompt or planner_prompt()
        self._where = address(settings.base_url, settings.key_env)
        self._key = key_from(settings.key_env, "planner.kind llm")
        self._tokens = Tokens(every_word=True)
        self.counters = Counters()
        self.version = f"llm planner 1 {settings.model} {self._prompt.digest}"

    def terms(self, queries: pa.Table) -> pa.Table:
        """Rows of `query_terms` for rows of tenant, query_id and text; each text is asked about once.

        Raises:
            DarklodeError: no call can succeed, or none has for `give_up_after` seconds.
        """
        with Background() as background:
            found = background.run(self._ask(list(dict.fromkeys(queries["text"].to_pylist()))), lambda: None)
        return planned(queries, lambda _tenant, text: found[text])

    async def _ask(self, texts: list[str]) -> dict[str, dict[str, float]]:
        given = self._settings
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        http = Http(given.base_url.rstrip("/") + "/chat/completions", headers, given.timeout)
        replica = Replica(self._where, Pace(given.max_in_flight), http)
        servers = Replicas([replica], given.give_up_after, self.counters, lambda _said: None, SECTION)
        batch = _Batch(given, self._key, servers, self.counters)
        left, found = iter(texts), dict[str, dict[str, float]]()
        workers = [asyncio.create_task(self._work(left, found, batch)) for _ in range(given.max_in_flight)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await http.close()
        return found

    async def _work(self, texts: Iterator[str], found: dict[str, dict[str, float]], batch: "_Batch") -> None:
        for text in texts:
            terms = await self._plan(text, batch)
            found[text] = terms or {}
            self.counters.answer(null=terms is None, truncated=False)

    async def _plan(self, text: str, batch: "_Batch") -> dict[str, float] | None:
        """Term → importance; None if there is no readable reply."""
        said: str | None = None
        for time_ in range(1 + ASKED_AGAIN):
            self.counters.asked_again += time_ > 0
            request = {"model": self._settings.model, "temperature": 0, "messages": self._prompt.messages(text, said)}
            try:
                reply = (await batch.complete(json.dumps(request).encode()))["choices"][0]["message"].get("content")
            except Refused:
                return None
            try:
                return importances(reply, text, self._tokens)
            except Unreadable:
                said = reply if isinstance(reply, str) else ""
        return None


class _Batch:
    """Sends the calls of one batch until they are answered."""

    def __init__(self, settings: PlannerSettings, key: str, servers: Replicas, counters: Counters) -> None:
        self._settings, self._key, self._servers, self._counters = settings, key, servers, counters
        self._stop = asyncio.Event()

    async def complete(self, body: bytes) -> Mapping[str, Any]:
        """The completion of a call; failures that may pass are waited out.

        Raises:
            Refused: the server will not take this call.
            DarklodeError: no call can succeed, or this one has failed for `give_up_after` seconds.
        """
        tries, since = 0, 0.0
        while True:
            replica = await self._servers.ready(0, self._stop)
            try:
                return await self._in_turn(replica, body)
            except Transient as failure:
                self._servers.failed(replica, failure)
                since = since or time.monotonic()
                if time.monotonic() - since >= self._settings.give_up_after:
                    raise DarklodeError(
                        f"{replica.where} {failure.reason}; one call has failed for "
                        f"{self._settings.give_up_after:g} s (planner.give_up_after); run again"
                    ) from None
                self._counters.retries += 1
                await pause(backoff(tries, failure, FIRST_WAIT, LONGEST_WAIT), self._stop)
            tries += 1

    async def _in_turn(self, replica: Replica, body: bytes) -> Mapping[str, Any]:
        async with self._servers.turn(replica):
            self._counters.calls += 1
            try:
                return completion_of(await replica.http.post(body), self._key, self._settings.key_env, SECTION)
            except DarklodeError as error:
                raise type(error)(f"{self._settings.model} at {replica.where} {error}") from None
