"""One request to an embeddings endpoint, tried until it succeeds, cannot succeed or has failed for too long."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pipeline.encoders.batching import Batch
from pipeline.encoders.failures import connection_failure, status_failure
from pipeline.encoders.replies import BadReply, Reply, read_reply
from pipeline.encoders.spending import Spending
from pipeline.endpoint import Transient, backoff, pause
from pipeline.errors import DarklodeError
from schemas.settings import OpenAIEncoder as Settings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

FIRST_WAIT = 0.5
LONGEST_WAIT = 60.0
BAD_REPLIES = 6
"""So many wrong replies to one request are no accident."""
_LOOK_AGAIN = 0.02


class Remote:
    """An endpoint with its rate limit, its spending and the dimensions that it has shown."""

    def __init__(self, settings: Settings, key: str, where: str) -> None:
        self._settings = settings
        self._key = key
        self._where = where
        self._next_turn = 0.0
        self.spending = Spending(settings.price_per_million, settings.spending_limit)
        self.dimensions = settings.dimensions

    async def embed(
        self, client: AsyncOpenAI, batch: Batch, parameters: dict[str, object], names: list[str], stop: asyncio.Event
    ) -> Reply:
        """The batch's vectors, all checked.

        Exponential backoff with full jitter; a Retry-After header, in seconds or as a date, is the least that is
        waited, up to two minutes. Wrong replies are asked for again a few times.

        Raises:
            DarklodeError: refused, failing for `give_up_after` seconds, wrong again and again (names the text), or
                over the spending limit.
            Stopped: it failed, and meanwhile another batch did for good.
        """
        failing_since, tries, bad = 0.0, 0, 0
        while True:
            try:
                return await self._once(client, batch, parameters)
            except BadReply as error:
                bad += 1
                if bad == BAD_REPLIES:
                    raise self._wrong(error, names) from None
                failure = Transient(error.reason)
            except Transient as error:
                failure = error
            failing_since = failing_since or time.monotonic()
            await self._wait(failure, tries, failing_since, stop)
            tries += 1

    async def _once(self, client: AsyncOpenAI, batch: Batch, parameters: dict[str, object]) -> Reply:
        await self._turn()
        await self._afford(batch.tokens)
        billed = batch.tokens
        try:
            reply = read_reply(await self._post(client, batch, parameters), len(batch.texts), self.dimensions)
            billed = reply.tokens or billed
        except Transient as error:
            billed = billed if error.billed else 0
            raise
        except DarklodeError:
            billed = 0
            raise
        finally:
            self.spending.settle(batch.tokens, billed)
        self.dimensions = int(reply.vectors.shape[1])
        return reply

    async def _post(self, client: AsyncOpenAI, batch: Batch, parameters: dict[str, object]) -> bytes:
        import openai  # noqa: PLC0415 (an optional package)

        try:
            response = await client.embeddings.with_raw_response.create(
                input=batch.texts,
                model=self._settings.model,
                dimensions=self._settings.dimensions or openai.omit,
                encoding_format="base64",
                extra_headers=None if self._key else {"Authorization": openai.omit},
                extra_body=parameters or None,
            )
        except openai.APIStatusError as error:
            raise status_failure(error, self._settings, self._where, self._key) from None
        except openai.APIConnectionError as error:
            raise connection_failure(error, self._settings.timeout) from None
        return response.http_response.content

    async def _turn(self) -> None:
        if self._settings.requests_per_minute:
            now = time.monotonic()
            turn = max(now, self._next_turn)
            self._next_turn = turn + 60 / self._settings.requests_per_minute
            await asyncio.sleep(turn - now)

    async def _afford(self, tokens: int) -> None:
        while self.spending.reserved and not self.spending.allows(tokens):
            await asyncio.sleep(_LOOK_AGAIN)  # estimates are high: what is under way may leave enough
        self.spending.reserve(tokens)

    async def _wait(self, failure: Transient, tries: int, since: float, stop: asyncio.Event) -> None:
        left = since + self._settings.give_up_after - time.monotonic()
        if left <= 0:
            raise DarklodeError(
                f"{self._where} {failure.reason}; a request has failed for {self._settings.give_up_after:g} s "
                "(give_up_after). What was received is kept: run again to go on from there"
            )
        await pause(min(backoff(tries, failure, FIRST_WAIT, LONGEST_WAIT), left), stop)

    def _wrong(self, error: BadReply, names: list[str]) -> DarklodeError:
        return DarklodeError(
            f"{self._where}: the reply for text {names[error.place]} {error.reason}, {BAD_REPLIES} times in a row; "
            "nothing of that request was kept. Check that base_url is an embeddings endpoint and that the model has "
            "the dimensions asked for"
        )
