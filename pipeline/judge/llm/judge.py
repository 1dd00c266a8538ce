"""A language model behind OpenAI-compatible servers, as a judge: one pair a call, many calls at once."""

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
from darklode.pipeline.judge.kinds.llm import LlmSettings
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.llm.capability_probe import forms, probe
from darklode.pipeline.judge.llm.prompt import PairText, load_prompt
from darklode.pipeline.judge.llm.reply_parsing import LlmReading, read, recall_replies, reply_batch
from darklode.pipeline.judge.llm.response_formats import RequestTemplate
from darklode.pipeline.judge.llm.served_model import served_identity
from darklode.pipeline.judge.port import Earlier, ReplyBatch, StreamingJudge

REFUSED_IN_A_ROW = 100
"""So many pairs refused without an answer between them, and it is not the pairs that are at fault."""

GLANCE_SECONDS = 5.0
"""A server that says what it serves does so within this time; the ledger needs none."""

T = TypeVar("T")


class LlmJudge(StreamingJudge):
    """A streaming judge. Its calls follow the queries, so that a prefix cache serves what a query's pairs share.

    Whatever the transport does, a pair gets a verdict by a reply to it or none at all; a reply that cannot be read
    is asked for again, and then left null. Where the ledger knows the judge, neither a server nor the key is needed
    before the first pair that is to be asked; a server that is there says who is served.

    Args:
        settings: of the kind llm.
        say: told when a server goes down or comes back.
        root: of the cache, where verdicts and spending are kept over runs; null: the user's cache folder.

    Raises:
        SettingsError: the prompt, or an address, cannot be used.
    """

    def __init__(
        self,
        settings: LlmSettings,
        say: Callable[[str], None] = lambda _line: None,
        root: str | None = None,
    ) -> None:
        self._settings, self._prompt, self._endpoint = settings, load_prompt(settings.prompt), endpoint_of(settings)
        self._root, self._say = root, say
        self._begun = self._obeyed = False

    @cached_property
    def _client(self) -> Client:
        return Client(self._endpoint, SpendingLedger(self._root, self._endpoint.account), self._say)

    @property
    def counters(self) -> Counters:
        """What was asked so far.

        Raises:
            MissingPart: the key is missing.
        """
        return self._client.counters

    @property
    def judge_id(self) -> str:
        """See `RequestTemplate.judge_id` and `template`."""
        return self.template.judge_id

    @property
    def previous_version(self) -> Earlier | None:
        return self.template.previous_version

    @property
    def note(self) -> str:
        """The counters in a line, with the prefix cache's hit rate where the servers tell it; empty before any call."""
        if not self._begun:
            return ""
        rate = self._prefix_cache.recent_rate
        return ", ".join(filter(None, [str(self.counters), "" if rate is None else f"prefix cache {rate:.0%}"]))

    @cached_property
    def _prefix_cache(self) -> PrefixCache:
        return PrefixCache(self._settings.base_url)

    @cached_property
    def template(self) -> RequestTemplate:
        """The judge in use: in the strictest form that verdicts are kept of, or else that the server obeys.

        The server is asked with the first reading, in a thread of its own. Where none says at once what it serves, and
        the ledger knows of one model only behind the name, that is it.

        Raises:
            MissingPart: the key is missing.
            DarklodeError: no server can be reached, or none can judge; see `probe`.
        """
        name = self._served_now()
        template = self._template_in_ledger(name) if name is not None else self._only_template_in_ledger()
        if template:
            if not template.form.logprobs:
                self._say(
                    f"labels of {template.judge_id} have no probability: its verdicts are kept as they were asked for "
                    "first, without log-probabilities. To judge anew, with them where the server gives any, set "
                    "another judge.revision"
                )
            return template
        if name and (unnamed := self._template_in_ledger("")):
            self._say(
                f"{self._settings.model} is {name}, by which all is judged anew. Verdicts are kept of "
                f"{unnamed.judge_id}, which does not say of what model: if it is the same, set judge.trust_name"
            )
        probed = self._run_in_thread(lambda session: probe(self._settings, self._prompt, session, self._say))
        self._obeyed = True
        return probed

    def _run_in_thread(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """What is done with the servers in a thread and an event loop of its own."""

        async def run_loop() -> T:
            async with self._client.session() as session:
                return await work(session)

        with Background() as apart:
            return apart.run(run_loop(), lambda: None)

    def _served_now(self) -> str | None:
        """What is served, if a server says so at once."""
        try:
            return self._run_in_thread(
                lambda session: asyncio.wait_for(served_identity(self._settings, session), GLANCE_SECONDS)
            )
        except (MissingPart, TimeoutError):
            return None

    @property
    def _forms(self) -> list[RequestTemplate]:
        return [RequestTemplate(self._settings, self._prompt, form) for form in forms(self._settings)]

    def _template_in_ledger(self, name: str) -> RequestTemplate | None:
        """The judge that is served so, in the strictest form that the ledger has verdicts of; None if it has none."""
        ledger = Ledger(self._root)
        each = (replace(template, served=name) for template in self._forms)
        return next((form for form in each if any(map(ledger.has_owner, form.ids))), None)

    def _only_template_in_ledger(self) -> RequestTemplate | None:
        """The same of whatever was served, where that was one model only."""
        owners = Ledger(self._root).owners()
        templates = [template for form in self._forms for owner in owners if (template := form.template_for(owner))]
        names = sorted({form.served or form.settings.model for form in templates})
        if len(names) > 1:
            self._say(f"verdicts are kept of {' and '.join(names)} under one name: a server must say which it is")
        return templates[0] if len(names) == 1 else None

    def recall_replies(self, replies: pa.Table) -> pa.Table:
        """See `StreamingJudge` and `reading.recalled`."""
        return recall_replies(replies, self.template)

    async def stream(self, pairs: pa.Table) -> AsyncGenerator[ReplyBatch]:
        template = await asyncio.to_thread(lambda: self.template)
        cases, self._begun = Cases(pairs, template, self.counters), True
        async with self._client.session() as session:
            await self._check(session, template)
            async with aclosing(session.results(by_query(pairs), cases.judge)) as results:
                async for some in results:
                    yield reply_batch(some)

    async def _check(self, session: Session, template: RequestTemplate) -> None:
        """See that the servers serve this judge, which may be known from the ledger alone, and obey its form.

        Raises:
            DarklodeError: they do not.
        """
        if self._obeyed:
            return
        form = template.form
        same = self._settings.model_copy(update={"mode": form.mode})
        probed = await probe(same, self._prompt, session, self._say)
        if probed.served != template.served:
            raise DarklodeError(
                f"{self._endpoint.name} serves {probed.served or same.model} now, and the kept verdicts that this "
                f"began with are by {template.served or same.model}: run again, to judge anew"
            )
        if form.logprobs and not probed.form.logprobs:
            raise DarklodeError(
                f"{self._endpoint.name} gives no log-probabilities now, and the verdicts that are kept of this judge "
                f"came with them (as {form}). Check the server, or name another judge.revision to judge all anew"
            )
        self._obeyed = True


def endpoint_of(settings: LlmSettings) -> Endpoint:
    """The servers of a judge, with its limits."""
    return Endpoint(
        section="judge",
        model=settings.model,
        base_urls=settings.base_url,
        path="/chat/completions",
        key_env=settings.key_env,
        max_in_flight=settings.max_in_flight,
        timeout=settings.timeout,
        give_up_after=settings.give_up_after,
        prompt_price=settings.prompt_price_per_million,
        completion_price=settings.completion_price_per_million,
        spending_limit=settings.spending_limit,
        token_limit=settings.token_limit,
        portion=settings.local_portion,
    )


@dataclass
class Case:
    """One pair on its way: what of it is shown to the model, and whether that is less than all."""

    pair: PairText
    name: str
    user: str
    truncated: bool


class Cases:
    """Judges pairs of a table by their row.

    Args:
        pairs: rows of `PAIRS`.
        template: what to ask.
        counters: told of each verdict.
    """

    def __init__(self, pairs: pa.Table, template: RequestTemplate, counters: Counters) -> None:
        self._template, self._counters, self._settings = template, counters, template.settings
        columns = ("query_id", "chunk_id", "query", "title", "heading", "text")
        self._rows = list(zip(*(pairs[name].to_pylist() for name in columns), strict=True))
        self._refusals = 0

    async def judge(self, row: int, lane: Lane) -> tuple[int, LlmReading]:
        """A pair's row and verdict, after as many replies as it takes and the settings allow.

        Raises:
            DarklodeError, Stopped: see `Session.call`; or pair after pair is refused.
        """
        case = self._case(row)
        body, estimate, earlier = self._template.body(case.user), self._template.estimate(case.user), None
        for attempt in range(self._settings.attempts):
            self._counters.asked_again += attempt > 0
            reading = await self._reply(case, body, estimate, lane)
            if earlier:
                reading.add_usage(earlier)
            earlier = reading
            if reading.readable or reading.refused:
                break
            raw_reply = reading.values.get("raw_reply")
            body = self._template.body_again(case.user, raw_reply)
            estimate = self._template.estimate_again(case.user, raw_reply)
        reading.values["truncated"] = case.truncated
        self._counters.answer(null=not reading.readable, truncated=case.truncated)
        return row, reading

    def _case(self, row: int) -> Case:
        query_id, chunk_id, *texts = self._rows[row]
        pair = PairText(*texts)
        user, cut = self._template.fit_pair(pair, self._settings.max_chunk_tokens)
        return Case(pair, f"{query_id} and {chunk_id}", user, cut)

    async def _reply(self, case: Case, body: bytes, estimate: Usage, lane: Lane) -> LlmReading:
        """One reply; a pair that the server finds too long is cut to half, once."""
        try:
            return await self._ask(case, body, estimate, lane)
        except RequestRejected as error:
            if not error.too_long:
                return self._refusal_reading(case, error)
        tokens = min(estimate_tokens(case.pair.chunk), self._settings.max_chunk_tokens)
        case.user, case.truncated = self._template.fit_pair(case.pair, max(1, tokens // 2))[0], True
        try:
            body, estimate = self._template.body(case.user), self._template.estimate(case.user)
            return await self._ask(case, body, estimate, lane)
        except RequestRejected as error:
            return self._refusal_reading(case, error)

    async def _ask(self, case: Case, body: bytes, estimate: Usage, lane: Lane) -> LlmReading:
        tries: dict[type[TransientError], int] = {UnparsableReply: self._settings.attempts}
        completion = await lane.call(chat_call(body, estimate, case.name, tries))
        self._refusals = 0
        reading = read(completion, self._template)
        self._counters.cached_tokens += reading.values.get("cached_tokens") or 0
        return reading

    def _refusal_reading(self, case: Case, error: RequestRejected) -> LlmReading:
        self._refusals += 1
        if self._refusals >= REFUSED_IN_A_ROW:
            raise DarklodeError(
                f"the server refused {self._refusals} pairs one after another, the last of them {case.name}: {error}. "
                "What was answered is kept; check the server, then run again"
            )
        reason = f"the server {error}" if error.failure else f"the server refused the pair, {error}"
        tried = {"attempts": self._settings.attempts} if error.failure else {}
        return LlmReading(tried | {"error": reason}, refused=True)


def by_query(pairs: pa.Table) -> Iterator[list[int]]:
    """Rows of each query, one query after another."""
    if not pairs.num_rows:
        return
    codes = _is_complete(pairs["query_hash"]).dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield rows.tolist()


def _is_complete(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined
