"""The LLM judge: a language model behind OpenAI-compatible servers, one pair per call, many concurrent calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.errors import DarklodeError, MissingPart
from darklode.pipeline.base.remote.background import Background
from darklode.pipeline.base.remote.budget import Counters, SpendingLedger, Usage
from darklode.pipeline.base.remote.call_errors import RequestRejected, TransientError, UnparsableReply
from darklode.pipeline.base.remote.chat import chat_call
from darklode.pipeline.base.remote.client import Client, Lane, Session
from darklode.pipeline.base.remote.endpoint import Endpoint
from darklode.pipeline.base.remote.prefix_cache import PrefixCache
from darklode.pipeline.base.remote.tokens import estimate_tokens
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.llm.capability_probe import forms, probe
from darklode.pipeline.judge.llm.prompt import PairText, load_prompt
from darklode.pipeline.judge.llm.reply_parsing import LlmReading, read, recall_replies, reply_batch
from darklode.pipeline.judge.llm.response_formats import RequestTemplate
from darklode.pipeline.judge.llm.served_model import served_identity
from darklode.pipeline.judge.llm.settings import LlmSettings
from darklode.pipeline.judge.port import Earlier, ReplyBatch, StreamingJudge

MAX_CONSECUTIVE_REFUSALS = 100
"""After this many consecutive refused pairs the judge stops: the server is at fault, not the pairs."""

IDENTITY_TIMEOUT = 5.0
"""Seconds to wait for the first `/models` request; without a reply the ledger may still identify the judge."""

T = TypeVar("T")


class LlmJudge(StreamingJudge):
    """A streaming judge; calls are ordered by query, so that prefix caching covers what a query's pairs share.

    A pair with an unreadable reply is requested again, up to `max_attempts`; then its verdict is null. If the ledger
    identifies the judge, neither server nor key is needed until a pair is missing.

    Args:
        settings: settings of the judge kind `llm`.
        say: receives warnings, e.g. when a server goes down or comes back.
        root: folder of the cache with verdicts and spending; None: the user's cache folder.

    Raises:
        SettingsError: the prompt or a URL is invalid.
    """

    def __init__(
        self,
        settings: LlmSettings,
        say: Callable[[str], None] = lambda _line: None,
        root: str | None = None,
    ) -> None:
        self._settings = settings
        prompt = load_prompt(settings.prompt)
        self._prompt = replace(prompt, examples=prompt.examples[::-1]) if settings.reverses_examples else prompt
        self._endpoint = endpoint_of(settings)
        self._root = root
        self._say = say
        self._begun = self._is_probed = False

    @cached_property
    def _client(self) -> Client:
        return Client(self._endpoint, SpendingLedger(self._root, self._endpoint.account), self._say)

    @property
    def counters(self) -> Counters:
        """Calls, tokens and cost so far.

        Raises:
            MissingPart: the key is missing.
        """
        return self._client.counters

    @property
    def judge_id(self) -> str:
        """The judge's id: model, prompt, output format, and a hash of everything that can change a verdict."""
        return self.template.judge_id

    @property
    def previous_version(self) -> Earlier | None:
        return self.template.previous_version

    @property
    def note(self) -> str:
        """Counters in one line, with the prefix cache's hit rate if reported; empty before the first call."""
        if not self._begun:
            return ""
        rate = self._prefix_cache.recent_rate
        return ", ".join(filter(None, [str(self.counters), "" if rate is None else f"prefix cache {rate:.0%}"]))

    @cached_property
    def _prefix_cache(self) -> PrefixCache:
        return PrefixCache(self._settings.base_url)

    @cached_property
    def template(self) -> RequestTemplate:
        """Model, prompt and output format in use: the strictest format with verdicts in the ledger, or else the
        strictest that the server obeys.

        Determined on first access, in a background thread. If no server answers at once, and the ledger has verdicts of
        only one model under this name, that model is assumed.

        Raises:
            MissingPart: the key is missing.
            DarklodeError: no server can be reached, or none can judge (`probe`).
        """
        served = self._served_identity()
        template = self._template_in_ledger(served) if served is not None else self._only_template_in_ledger()
        if template:
            if not template.form.logprobs:
                self._say(
                    f"labels of {template.judge_id} have no probability: its existing verdicts were made without "
                    "log-probabilities. To judge again with log-probabilities, set another judge.revision"
                )
            return template
        if served and (unnamed := self._template_in_ledger("")):
            self._say(
                f"{self._settings.model} is served as {served}, so all pairs are judged again. The ledger has verdicts "
                f"of {unnamed.judge_id}, whose served model is unknown: to reuse them, set judge.trust_model_name"
            )
        probed = self._run_in_thread(lambda session: probe(self._settings, self._prompt, session, self._say))
        self._is_probed = True
        return probed

    def _run_in_thread(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine with a session, in a background thread with its own event loop."""

        async def run_loop() -> T:
            async with self._client.session() as session:
                return await work(session)

        with Background() as background:
            return background.run(run_loop(), lambda: None)

    def _served_identity(self) -> str | None:
        """Ask the servers for the served model; None if no server answers within `IDENTITY_TIMEOUT`."""
        try:
            return self._run_in_thread(
                lambda session: asyncio.wait_for(served_identity(self._settings, session), IDENTITY_TIMEOUT)
            )
        except (MissingPart, TimeoutError):
            return None

    @property
    def _forms(self) -> list[RequestTemplate]:
        """A template per output format that the settings allow, strictest first."""
        return [RequestTemplate(self._settings, self._prompt, form) for form in forms(self._settings)]

    def _template_in_ledger(self, name: str) -> RequestTemplate | None:
        """Find the template of a served model, in the strictest format with verdicts in the ledger; None without
        verdicts.
        """
        ledger = Ledger(self._root)
        candidates = (replace(template, served=name) for template in self._forms)
        return next((template for template in candidates if any(map(ledger.has_owner, template.ids))), None)

    def _only_template_in_ledger(self) -> RequestTemplate | None:
        """Find the template of any served model, if the ledger has verdicts of exactly one; warns if of several."""
        owners = Ledger(self._root).owners()
        templates = [
            served_template
            for template in self._forms
            for owner in owners
            if (served_template := template.template_for(owner))
        ]
        served_models = sorted({template.served or template.settings.model for template in templates})
        if len(served_models) > 1:
            self._say(
                f"the ledger has verdicts of several models under one name ({', '.join(served_models)}), so a server "
                "must tell which one it serves"
            )
        return templates[0] if len(served_models) == 1 else None

    def recall_replies(self, replies: pa.Table) -> pa.Table:
        """Apply the current reading rules to verdicts from the ledger."""
        return recall_replies(replies, self.template)

    async def stream(self, pairs: pa.Table) -> AsyncGenerator[ReplyBatch]:
        template = await asyncio.to_thread(lambda: self.template)
        cases = Cases(pairs, template, self.counters)
        self._begun = True
        async with self._client.session() as session:
            await self._check(session, template)
            async with aclosing(session.results(by_query(pairs), cases.judge)) as results:
                async for readings in results:
                    yield reply_batch(readings)

    async def _check(self, session: Session, template: RequestTemplate) -> None:
        """Check that the servers serve this judge and obey its output format.

        Raises:
            DarklodeError: another model is served, or log-probabilities are missing.
        """
        if self._is_probed:
            return
        form = template.form
        fixed_format = self._settings.model_copy(update={"response_format": form.mode})
        probed = await probe(fixed_format, self._prompt, session, self._say)
        if probed.served != template.served:
            raise DarklodeError(
                f"{self._endpoint.name} now serves {probed.served or fixed_format.model}, but the ledger's verdicts "
                f"are by {template.served or fixed_format.model}: run again to judge all pairs with the served model"
            )
        if form.logprobs and not probed.form.logprobs:
            raise DarklodeError(
                f"{self._endpoint.name} returns no log-probabilities, but the ledger's verdicts of this judge have "
                f"them ({form}). Check the server, or set another judge.revision to judge all pairs again"
            )
        self._is_probed = True


def endpoint_of(settings: LlmSettings) -> Endpoint:
    """Build the endpoint (servers, limits and prices) of a judge."""
    return Endpoint(
        section="judge",
        model=settings.model,
        base_urls=settings.base_url,
        path="/chat/completions",
        api_key_env=settings.api_key_env,
        max_concurrency=settings.max_concurrency,
        timeout=settings.timeout,
        retry_timeout=settings.retry_timeout,
        prompt_price=settings.prompt_price_per_million,
        completion_price=settings.completion_price_per_million,
        spending_limit=settings.spending_limit,
        token_limit=settings.token_limit,
        portion=settings.local_portion,
    )


@dataclass
class Case:
    """A pair being judged.

    Attributes:
        pair: the pair's texts.
        name: ids of query and chunk, for messages.
        user: the user message of the request.
        truncated: whether the chunk in it was truncated.
    """

    pair: PairText
    name: str
    user: str
    truncated: bool


class Cases:
    """Judges pairs by their row number in a table.

    Args:
        pairs: a table with the columns of `PAIRS`.
        template: builds requests and reads replies.
        counters: updated with each verdict.
    """

    def __init__(self, pairs: pa.Table, template: RequestTemplate, counters: Counters) -> None:
        self._template = template
        self._counters = counters
        self._settings = template.settings
        columns = ("query_id", "chunk_id", "query", "title", "heading", "text")
        self._rows = list(zip(*(pairs[name].to_pylist() for name in columns), strict=True))
        self._refusals = 0

    async def judge(self, row: int, lane: Lane) -> tuple[int, LlmReading]:
        """Judge the pair of a row, with up to `max_attempts` replies; returns the row and its verdict.

        Raises:
            DarklodeError, Stopped: see `Session.call`; or too many consecutive pairs were refused.
        """
        case = self._case(row)
        body = self._template.body(case.user)
        estimate = self._template.estimate(case.user)
        previous_reading = None
        for attempt in range(self._settings.max_attempts):
            self._counters.asked_again += attempt > 0
            reading = await self._reply(case, body, estimate, lane)
            if previous_reading:
                reading.add_usage(previous_reading)
            previous_reading = reading
            if reading.is_readable or reading.is_refused:
                break
            raw_reply = reading.values.get("raw_reply")
            body = self._template.body_again(case.user, raw_reply)
            estimate = self._template.estimate_again(case.user, raw_reply)
        reading.values["truncated"] = case.truncated
        self._counters.answer(null=not reading.is_readable, truncated=case.truncated)
        return row, reading

    def _case(self, row: int) -> Case:
        """Build the case of a row, with its chunk truncated to `max_chunk_tokens`."""
        query_id, chunk_id, *texts = self._rows[row]
        pair = PairText(*texts)
        user, cut = self._template.fit_pair(pair, self._settings.max_chunk_tokens)
        return Case(pair, f"{query_id} and {chunk_id}", user, cut)

    async def _reply(self, case: Case, body: bytes, estimate: Usage, lane: Lane) -> LlmReading:
        """Request one reply; if the server rejects the pair as too long, halve its chunk and request once more."""
        try:
            return await self._ask(case, body, estimate, lane)
        except RequestRejected as error:
            if not error.too_long:
                return self._refusal_reading(case, error)
        tokens = min(estimate_tokens(case.pair.chunk), self._settings.max_chunk_tokens)
        case.user, _ = self._template.fit_pair(case.pair, max(1, tokens // 2))
        case.truncated = True
        try:
            body = self._template.body(case.user)
            estimate = self._template.estimate(case.user)
            return await self._ask(case, body, estimate, lane)
        except RequestRejected as error:
            return self._refusal_reading(case, error)

    async def _ask(self, case: Case, body: bytes, estimate: Usage, lane: Lane) -> LlmReading:
        """Make one call and read its reply; counts cached tokens, and ends a series of refusals."""
        tries: dict[type[TransientError], int] = {UnparsableReply: self._settings.max_attempts}
        completion = await lane.call(chat_call(body, estimate, case.name, tries))
        self._refusals = 0
        reading = read(completion, self._template)
        self._counters.cached_tokens += reading.values.get("cached_tokens") or 0
        return reading

    def _refusal_reading(self, case: Case, error: RequestRejected) -> LlmReading:
        """Build the reading of a refused pair; an error after `MAX_CONSECUTIVE_REFUSALS`."""
        self._refusals += 1
        if self._refusals >= MAX_CONSECUTIVE_REFUSALS:
            raise DarklodeError(
                f"the server refused {self._refusals} consecutive pairs, the last one {case.name}: {error}. "
                "Earlier replies are kept; check the server, then run again"
            )
        reason = f"the server {error}" if error.failure else f"the server refused the pair, {error}"
        tried = {"attempts": self._settings.max_attempts} if error.failure else {}
        return LlmReading(tried | {"error": reason}, is_refused=True)


def by_query(pairs: pa.Table) -> Iterator[list[int]]:
    """Yield the row numbers of each query's pairs, so that its calls share a prefix."""
    if not pairs.num_rows:
        return
    codes = _combine(pairs["query_hash"]).dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield rows.tolist()


def _combine(column: pa.ChunkedArray) -> pa.Array:
    """Join a column's chunks into one array; `combine_chunks` alone may return several."""
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined
