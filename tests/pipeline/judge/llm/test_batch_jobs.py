"""Calls at a hosted batch service: whatever is lost or killed on the way, none is submitted twice, none lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pyarrow as pa
import pytest

from darklode.pipeline.base.errors import DarklodeError, MissingPart
from darklode.pipeline.base.remote import batch_service as services
from darklode.pipeline.base.remote.batch_service import BatchService
from darklode.pipeline.base.remote.budget import Budget, Counters, SpendingLedger
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.llm import batch_files
from darklode.pipeline.judge.llm.batch_jobs import BatchJournal, HostedJudge, Submitted
from darklode.pipeline.judge.llm.judge import LlmJudge, endpoint_of
from darklode.pipeline.judge.llm.prompt import PairText, load_prompt
from darklode.pipeline.judge.llm.response_formats import OutputFormat, RequestTemplate
from darklode.pipeline.judge.llm.settings import LlmSettings
from helpers.fake_batches import FakeBatches
from helpers.scripted_stream import ScriptedStream, pairs

RUN = "data/runs/mine"
EVERY = pairs(*((query, chunk) for query in range(2) for chunk in range(5)))


@pytest.fixture
def service() -> Iterator[FakeBatches]:
    with FakeBatches() as fake:
        yield fake


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr(batch_files, "MAX_REQUESTS", 4)


class Desk:
    """One process's view of the judge at the service."""

    def __init__(self, service: FakeBatches, root: Path, **given: Any) -> None:
        self.settings = LlmSettings(model="fake", base_url=service.url, **given)
        self.template = RequestTemplate(
            self.settings, load_prompt(self.settings.prompt), OutputFormat("json", logprobs=True)
        )
        self.ledger, self.journal = Ledger(str(root)), BatchJournal(str(root))
        at = endpoint_of(self.settings)
        self.budget = Budget(at, Counters(), SpendingLedger(str(root), at.account))
        self.judge = HostedJudge(self.template, self.ledger, self.journal, BatchService(at), self.budget)

    def submit(self, every: pa.Table = EVERY) -> list[Submitted]:
        """As the command does it."""
        self.judge.settle(RUN)
        return list(self.judge.submit(self.left(every), RUN))

    def left(self, every: pa.Table = EVERY) -> Iterator[pa.Table]:
        known = self.ledger.open(self.template.judge_id).find(every).rows
        rest = every.take(pa.array(np.delete(np.arange(every.num_rows), known)))
        yield rest.filter(
            pa.array(self.journal.pairs(self.template.judge_id).find(batch_files.VERDICT_ROWS.keys(rest)) < 0)
        )

    def fetch(self) -> Counter[str]:
        """What all batches held."""
        return sum((counts for _, _, counts in self.judge.fetch()), Counter[str]())


def asked(service: FakeBatches) -> Counter[str]:
    """How often each pair is in a batch that was begun."""
    files = [service.files[one["input_file_id"]] for one in service.batches.values()]
    return Counter(json.loads(line)["custom_id"] for file in files for line in file.splitlines())


def test_calls_go_out_as_batches_and_answers_come_back_once(service: FakeBatches, tmp_path: Path) -> None:
    desk = Desk(service, tmp_path)
    sent = desk.submit()
    assert [one.calls for one in sent] == [4, 4, 2]
    assert [one.id for one in sent] == list(service.batches)
    assert set(asked(service).values()) == {1}
    assert {one["endpoint"] for one in service.batches.values()} == {"/v1/chat/completions"}
    assert Desk(service, tmp_path).submit() == [], "all is under way"
    assert Desk(service, tmp_path).fetch() == Counter()

    service.finish("batch-1")
    assert Desk(service, tmp_path).fetch() == {"verdict": 4}
    assert [state and state.status for _, state in desk.judge.look()] == ["in_progress"] * 2
    service.finish("batch-0", failing=1)
    service.finish("batch-2", "expired", failing=1)
    assert Desk(service, tmp_path).fetch() == {"verdict": 4, "failed": 2}
    assert list(desk.judge.look()) == []
    again = Desk(service, tmp_path).submit()
    assert [one.calls for one in again] == [2], "what failed is free again"
    service.finish("batch-3")
    assert desk.fetch() == {"verdict": 2}

    silent = ScriptedStream(judge_id=desk.template.judge_id)
    replies = asyncio.run(LedgerJudge(silent, desk.ledger).judge(EVERY))
    live = LlmJudge(desk.settings.model_copy(update={"response_format": "json"}), root=str(tmp_path / "another"))
    assert live.judge_id == desk.template.judge_id
    said = asyncio.run(LedgerJudge(live, Ledger(str(tmp_path / "another"))).judge(EVERY))
    assert silent.asked == []
    assert replies.select(["relevant", "probability", "raw_reply"]) == said.select(
        ["relevant", "probability", "raw_reply"]
    )


def dies_at(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, *, after: bool) -> None:
    """The process ends at a call, the second time that it is made: before it did its work, or after."""
    real, calls = getattr(owner, name), iter(range(9))

    def deadly(*given: Any) -> Any:
        last = next(calls) == 1
        if last and not after:
            raise KeyboardInterrupt
        found = real(*given)
        if last:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(owner, name, deadly)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("owner", "name"),
    [(BatchJournal, "note"), (BatchService, "start"), (BatchService, "_create_batch"), (services, "_state")],
)
def test_a_kill_anywhere_submits_nothing_twice(
    service: FakeBatches, tmp_path: Path, owner: Any, name: str, after: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        dies_at(patch, owner, name, after=after)
        if owner is services:  # the answer to a look
            Desk(service, tmp_path).submit()
            with pytest.raises(KeyboardInterrupt):
                list(Desk(service, tmp_path).judge.look())
        else:
            with pytest.raises(KeyboardInterrupt):
                Desk(service, tmp_path).submit()
    Desk(service, tmp_path).submit()
    assert sorted(asked(service).values()) == [1] * 10
    service.finish_all()
    assert Desk(service, tmp_path).fetch() == {"verdict": 10}


def test_a_kill_while_answers_are_kept_loses_none(service: FakeBatches, tmp_path: Path) -> None:
    Desk(service, tmp_path).submit()
    service.finish_all()
    with pytest.MonkeyPatch.context() as patch:
        dies_at(patch, BatchJournal, "forget", after=False)
        with pytest.raises(KeyboardInterrupt):
            Desk(service, tmp_path).fetch()
    desk = Desk(service, tmp_path)
    assert desk.fetch() == {"verdict": 6}
    assert len(desk.ledger.open(desk.template.judge_id)) == 10
    assert desk.submit() == []


@pytest.mark.parametrize("fault", ["lost", "dropped", "500"])
def test_a_reply_that_is_lost_begins_no_second_batch(service: FakeBatches, tmp_path: Path, fault: str) -> None:
    """The first try to begin a batch fails, once after the service had begun it."""
    times = Counter[str]()

    def first(method: str, path: str) -> str | None:
        times[f"{method} {path}"] += 1
        return fault if (method, path) == ("POST", "/v1/batches") and times[f"{method} {path}"] == 1 else None

    service.fault = first
    if fault == "lost":
        Desk(service, tmp_path).submit()
    else:
        with pytest.raises(DarklodeError, match="un the same command again to continue"):
            Desk(service, tmp_path).submit()
        Desk(service, tmp_path).submit()
    assert sorted(asked(service).values()) == [1] * 10
    service.finish_all()
    assert Desk(service, tmp_path).fetch() == {"verdict": 10}


def test_passing_faults_of_uploads_looks_and_downloads_are_waited_out(service: FakeBatches, tmp_path: Path) -> None:
    times = Counter[str]()

    def flaky(method: str, path: str) -> str | None:
        times[path] += 1
        kinds = [None, None] if path == "/v1/batches" else ["429", "dropped", "503"]
        return kinds[times[path] - 1] if times[path] <= len(kinds) else None

    service.fault = flaky
    desk = Desk(service, tmp_path)
    assert len(desk.submit()) == 3
    service.finish_all()
    assert desk.fetch() == {"verdict": 10}
    assert max(times.values()) > 3


def test_a_download_that_breaks_off_is_said_and_the_same_call_goes_on(service: FakeBatches, tmp_path: Path) -> None:
    desk = Desk(service, tmp_path)
    desk.submit()
    service.finish_all()
    service.fault = lambda _method, path: "cut" if path.endswith("/content") else None
    with pytest.raises(DarklodeError, match=r"RemoteProtocolError\); run the same command again to continue"):
        desk.fetch()
    service.fault = None
    assert desk.fetch() == {"verdict": 10}


def test_an_unconfirmed_file_of_another_run_is_left_to_it(service: FakeBatches, tmp_path: Path) -> None:
    desk = Desk(service, tmp_path)
    service.fault = lambda method, path: "dropped" if (method, path) == ("POST", "/v1/batches") else None
    with pytest.raises(DarklodeError):
        desk.submit()
    service.fault = None
    (unsure,) = desk.journal.for_judge(desk.template.judge_id)
    desk.journal.note(replace(unsure, run="another"))
    assert [(one.calls, state) for one, state in desk.judge.look()] == [(4, None)]
    assert [one.calls for one in desk.submit()] == [4, 2], "its four pairs may be about to be submitted"
    assert desk.fetch() == Counter()


def test_a_batch_that_is_refused_as_a_whole_frees_its_pairs(service: FakeBatches, tmp_path: Path) -> None:
    desk = Desk(service, tmp_path)
    desk.submit()
    service.fail("batch-0", "Enqueued token limit reached")
    (_, state, counts), *_ = desk.judge.fetch()
    assert state
    assert (state.message, counts) == ("Enqueued token limit reached", Counter())
    assert [one.calls for one in desk.submit()] == [4]


def test_a_batch_whose_answers_are_gone_stops_no_other_and_is_forgotten(service: FakeBatches, tmp_path: Path) -> None:
    desk = Desk(service, tmp_path)
    desk.submit()
    service.finish_all()
    del service.files[service.batches["batch-0"]["output_file_id"]]
    with pytest.raises(
        MissingPart, match=r"batch-0: .*404.*`darklode judge batch forget batch-0` allows its 4 requests"
    ):
        desk.fetch()
    assert len(desk.ledger.open(desk.template.judge_id)) == 6, "the answers of the other two are kept"
    assert desk.submit() == [], "its calls still count as under way"
    with pytest.raises(MissingPart, match=r"no batch batch-9 is submitted \(submitted: batch-0\)"):
        desk.journal.find("batch-9")
    desk.journal.forget(desk.journal.find("batch-0"))
    assert [one.calls for one in desk.submit()] == [4]


def test_a_batch_that_is_gone_hides_no_other_and_was_paid_for(service: FakeBatches, tmp_path: Path) -> None:
    desk = Desk(service, tmp_path, token_limit=10**6, prompt_price_per_million=2, completion_price_per_million=3)
    sent = desk.submit()
    service.finish("batch-2")
    del service.batches["batch-0"]
    seen: list[str | None] = []
    with pytest.raises(MissingPart, match=r"batch-0: .*`darklode judge batch forget batch-0` allows its 4 requests"):
        seen += (one.id for one, _ in desk.judge.look())
    assert seen == ["batch-1", "batch-2"]
    with pytest.raises(MissingPart, match=r"batch-0: "):
        desk.fetch()
    assert len(desk.ledger.open(desk.template.judge_id)) == 2
    book = SpendingLedger(str(tmp_path), endpoint_of(desk.settings).account)
    (prompt, completion), cost = book.total()
    lost = sent[0]
    desk.journal.write_off(desk.journal.find("batch-0"))
    after, paid = book.total()
    assert tuple(after) == (prompt + lost.prompt_tokens, completion + lost.completion_tokens)
    assert paid - cost == pytest.approx((2 * lost.prompt_tokens + 3 * lost.completion_tokens) / 1e6)
    assert [one.calls for one in desk.submit()] == [4]


def test_a_limit_counts_what_is_under_way_and_what_was_spent(service: FakeBatches, tmp_path: Path) -> None:
    template = Desk(service, tmp_path).template
    each = sum(template.estimate(template.prompt.user_text(PairText("query 0", None, None, "chunk 0"))))
    given = {"token_limit": 9 * each}
    with pytest.raises(DarklodeError, match=rf"judge\.token_limit {9 * each:,} would be exceeded"):
        Desk(service, tmp_path, **given).submit()
    assert len(service.batches) == 2
    with pytest.raises(DarklodeError, match="would be exceeded"):
        Desk(service, tmp_path, **given).submit()
    assert len(service.batches) == 2
    service.finish_all()
    desk = Desk(service, tmp_path, **given)
    assert desk.fetch() == {"verdict": 8}
    used = desk.ledger.open(desk.template.judge_id).rows(["prompt_tokens", "completion_tokens"]).to_pylist()
    spent, _ = SpendingLedger(str(tmp_path), endpoint_of(desk.settings).account).total()
    assert tuple(spent) == (sum(one["prompt_tokens"] for one in used), sum(one["completion_tokens"] for one in used))
    assert [one.calls for one in Desk(service, tmp_path, token_limit=sum(spent) + 2 * each).submit()] == [2]


def test_a_wrong_key_and_a_server_without_batches_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-wrong-and-secret")
    with (
        FakeBatches(key="another") as service,
        pytest.raises(MissingPart, match="rejected the key in JUDGE_KEY") as caught,
    ):
        Desk(service, tmp_path, api_key_env="JUDGE_KEY").submit()
    assert "sk-wrong-and-secret" not in str(caught.value)
    monkeypatch.delenv("JUDGE_KEY")
    with FakeBatches() as service:
        with pytest.raises(MissingPart, match="set the environment variable JUDGE_KEY"):
            Desk(service, tmp_path, api_key_env="JUDGE_KEY")
        service.fault = lambda _method, _path: "404"
        with pytest.raises(MissingPart, match=r"answered 404: unknown file .*`darklode judge batch export`"):
            Desk(service, tmp_path / "new").submit()
    with pytest.raises(DarklodeError, match="cannot be reached"):
        Desk(service, tmp_path / "gone").submit()
