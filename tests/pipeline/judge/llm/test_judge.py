"""The language-model judge against a server of real sockets, well and ill behaved."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.errors import DarklodeError, MissingPart, SettingsError
from darklode.pipeline.base.remote import client, replicas
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.llm.judge import LlmJudge, by_query
from darklode.pipeline.judge.llm.prompt import PairText
from darklode.pipeline.judge.llm.settings import LlmSettings
from darklode.pipeline.judge.port import PAIRS, REPLIES, ReplyBatch
from helpers.fake_chat import FAULTS, PROSE, FakeChat, Request, at_random, label_of, probabilities
from helpers.scripted_stream import ScriptedStream

NO_MODES = frozenset[str]()
PROBES = 2
"""Calls to a server that obeys the first form."""


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def pairs_of(queries: int, chunks: int, text: str = "what chunk {} says") -> pa.Table:
    """Rows of `PAIRS`: each query with each chunk."""
    return pa.Table.from_pylist(
        [
            {
                "tenant": "t",
                "query_id": f"q{query:03}",
                "query": f"how to do {query}",
                "chunk_id": f"c{chunk:03}",
                "title": "Manual" if chunk % 2 else None,
                "heading": None,
                "text": text.format(chunk),
                "query_hash": hash_of(f"how to do {query}"),
                "chunk_hash": hash_of(f"{chunk}"),
            }
            for query in range(queries)
            for chunk in range(chunks)
        ],
        PAIRS,
    )


PAIRS_12 = pairs_of(3, 4)


def judge_of(*servers: FakeChat, root: str | None = None, **changed: Any) -> LlmJudge:
    given = {"kind": "llm", "model": "fake", "base_url": [server.url for server in servers], "retry_timeout": 20}
    return LlmJudge(LlmSettings(**(given | changed)), root=root)


def what_was_said(replies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The replies without what it took to get them."""
    cost = {"attempts", "prompt_tokens", "cached_tokens", "completion_tokens"}
    return [{name: value for name, value in reply.items() if name not in cost} for reply in replies]


async def collect(judge: LlmJudge, pairs: pa.Table, into: list[ReplyBatch]) -> None:
    async for some in judge.stream(pairs):
        into.append(some)


def ask(judge: LlmJudge, pairs: pa.Table = PAIRS_12) -> list[dict[str, Any]]:
    """Replies in the order of the pairs; each pair has exactly one."""
    came: list[ReplyBatch] = []
    asyncio.run(collect(judge, pairs, came))
    rows = np.concatenate([some.rows for some in came])
    assert sorted(rows.tolist()) == list(range(pairs.num_rows))
    replies = pa.concat_tables([some.replies for some in came])
    assert replies.schema.equals(REPLIES)
    found: list[dict[str, Any]] = replies.take(np.argsort(rows)).to_pylist()
    return found


def users_of(judge: LlmJudge, pairs: pa.Table) -> list[str]:
    """The user text of each pair, as the server gets it."""
    names = ("query", "title", "heading", "text")
    return [judge.template.prompt.user_text(PairText(*(row[name] for name in names))) for row in pairs.to_pylist()]


@pytest.mark.parametrize(
    ("knows", "refuses", "form"),
    [
        ({"choice", "json", "logprobs"}, NO_MODES, "choice+logprobs"),
        ({"choice", "json"}, NO_MODES, "choice"),
        ({"json", "logprobs"}, NO_MODES, "json+logprobs"),
        ({"json", "logprobs"}, {"choice"}, "json+logprobs"),
        ({"json"}, {"choice", "logprobs"}, "json"),
        ({"logprobs"}, NO_MODES, "text+logprobs"),
        (NO_MODES, NO_MODES, "text"),
        (NO_MODES, {"choice", "json", "logprobs"}, "text"),
    ],
)
def test_the_form_that_the_server_obeys_is_found(knows: set[str], refuses: set[str], form: str) -> None:
    with FakeChat(knows=frozenset(knows), refuses=frozenset(refuses)) as server:
        judge = judge_of(server)
        assert f":{form}:" in judge.judge_id
        said = ask(judge)
        expected = [probabilities(user, ("yes", "no")) for user in users_of(judge, PAIRS_12)]
    assert [one["relevant"] for one in said] == [shares["yes"] > shares["no"] for shares in expected]
    known = [shares["yes"] if "logprobs" in form else None for shares in expected]
    assert [one["probability"] for one in said] == pytest.approx(known)
    assert {(one["error"], one["truncated"], one["attempts"]) for one in said} == {(None, False, 1)}


def test_a_server_that_fails_on_what_it_does_not_know_is_asked_in_another_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.02)
    with FakeChat(refuses=frozenset({"choice"}), refusal_status=500) as server:
        assert ":json+logprobs:" in judge_of(server).judge_id


@pytest.mark.parametrize("fault", FAULTS[:6])
def test_a_server_that_is_not_ready_is_waited_for(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.02)
    with FakeChat(script=lambda request: fault if request.number < 3 else None, hang_seconds=2) as server:
        assert ":choice+logprobs:" in judge_of(server, timeout=0.2).judge_id


def test_one_slip_of_the_server_does_not_change_the_form() -> None:
    with FakeChat(script=lambda request: "wrong label" if request.number == 1 else None) as server:
        assert ":choice+logprobs:" in judge_of(server).judge_id


def with_ledger(server: FakeChat, root: Path, **changed: Any) -> LedgerJudge:
    given = LlmSettings(**({"model": "fake", "base_url": server.url, "retry_timeout": 5} | changed))
    return LedgerJudge(LlmJudge(given, root=str(root)), Ledger(str(root)))


def test_the_form_of_the_verdicts_that_are_kept_stands(tmp_path: Path) -> None:
    with FakeChat() as server:
        first = with_ledger(server, tmp_path)
        said = asyncio.run(first.judge(PAIRS_12))
    for mode in ("auto", "choice"):
        offline = with_ledger(server, tmp_path, response_format=mode, api_key_env="NO_SUCH_KEY")
        assert (offline.judge_id, offline.live.note) == (first.judge_id, "")
        assert asyncio.run(offline.judge(PAIRS_12)).equals(said)
    with FakeChat() as server:
        later = with_ledger(server, tmp_path)
        assert asyncio.run(later.judge(PAIRS_12)).equals(said)
        assert server.requests == 0
        asyncio.run(later.judge(pairs_of(3, 6)))
        assert server.requests == PROBES + 6, "the form is confirmed before the first pair that is not known"
        asyncio.run(later.judge(pairs_of(3, 7)))
        assert server.requests == PROBES + 6 + 3, "once"


BEFORE = "llm-1:fake:binary-1:choice+logprobs:4ac74c207e3431a1"
"""Whose verdicts these are before the quoting of today."""


def test_verdicts_of_before_the_quoting_of_today_stand_where_the_model_was_shown_the_same(tmp_path: Path) -> None:
    pairs = pairs_of(2, 3)
    texts = ["List<String> x" if "1" in chunk else "a[0] <= 3" for chunk in pairs["chunk_id"].to_pylist()]
    pairs = pairs.set_column(pairs.column_names.index("text"), PAIRS.field("text"), pa.array(texts))
    said = asyncio.run(LedgerJudge(ScriptedStream(judge_id=BEFORE), Ledger(str(tmp_path))).judge(pairs)).to_pylist()
    with FakeChat() as server:
        judge = with_ledger(server, tmp_path)
        replies = asyncio.run(judge.judge(pairs)).to_pylist()
        assert server.requests == PROBES + 2
    assert judge.judge_id != BEFORE
    kept = [row for row, text in enumerate(texts) if "List" not in text]
    assert [replies[row] for row in kept] == [said[row] | {"contradicted": False} for row in kept]
    assert {replies[row]["raw_reply"] for row in range(6) if row not in kept} <= {"yes", "no"}
    assert asyncio.run(with_ledger(server, tmp_path).judge(pairs)).to_pylist() == replies, "no server is needed now"


@pytest.mark.parametrize(
    ("knows", "message"),
    [
        (frozenset({"json", "logprobs"}), "no label in any output format of judge.response_format choice"),
        (frozenset({"choice"}), r"returns no log-probabilities, .* \(choice\+logprobs\)"),
    ],
)
def test_a_server_that_obeys_another_form_than_the_verdicts_that_are_kept_is_refused(
    tmp_path: Path, knows: frozenset[str], message: str
) -> None:
    with FakeChat() as server:
        first = with_ledger(server, tmp_path)
        asyncio.run(first.judge(PAIRS_12))
    with FakeChat(knows=knows) as server:
        judge = with_ledger(server, tmp_path)
        asyncio.run(judge.judge(PAIRS_12))
        with pytest.raises(DarklodeError, match=message):
            asyncio.run(judge.judge(pairs_of(3, 5)))
        assert judge.judge_id == first.judge_id
        assert not any("what chunk" in pair for pair in server.asked), "no pair was paid for"


def test_a_call_is_system_then_query_then_chunk_with_the_servers_parameters() -> None:
    with FakeChat() as server:
        ask(judge_of(server, extra_body={"seed": 7, "temperature": None, "chat_template_kwargs": {"x": False}}))
        body = server.bodies[-1]
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    user = body["messages"][1]["content"]
    assert 0 < user.index("how to do") < user.index("what chunk")
    assert body["structured_outputs"] == {"choice": ["yes", "no"]}
    assert (body["logprobs"], body["top_logprobs"], body["seed"]) == (True, 20, 7)
    assert "temperature" not in body
    assert body["chat_template_kwargs"] == {"x": False}


def test_grades_and_rationales() -> None:
    with FakeChat(labels=("0", "1", "2", "3")) as server:
        judge = judge_of(server, prompt="graded", rationale=True)
        assert ":graded-1:json+logprobs+rationale:" in judge.judge_id
        said = ask(judge)
        users = users_of(judge, PAIRS_12)
    labels = ("3", "2", "1", "0")
    assert [one["grade"] for one in said] == [int(label_of(user, labels)) for user in users]
    shares = [probabilities(user, labels) for user in users]
    means = [sum(int(grade) * share for grade, share in one.items()) for one in shares]
    assert [one["expected_grade"] for one in said] == pytest.approx(means)
    assert [one["probability"] for one in said] == pytest.approx([s["2"] + s["3"] for s in shares])
    assert {one["rationale"] for one in said} == {"Because."}


def test_the_judge_id_names_what_can_change_a_verdict_and_nothing_else() -> None:
    with FakeChat() as one, FakeChat() as other:
        base = judge_of(one).judge_id
        assert re.fullmatch(r"llm-1:fake:binary-1:choice\+logprobs:[0-9a-f]{16}", base)
        same: list[dict[str, Any]] = [{"timeout": 3}, {"threshold": 0.7}, {"max_concurrency": 3}, {"max_attempts": 9}]
        assert {judge_of(other, **changed).judge_id for changed in same} == {base}
        different: list[dict[str, Any]] = [
            *({"prompt": "graded"}, {"response_format": "json"}, {"rationale": True}, {"revision": "r2"}),
            *({"extra_body": {"seed": 1}}, {"max_chunk_tokens": 100}),
        ]
        assert len({base, *(judge_of(one, **changed).judge_id for changed in different)}) == len(different) + 1


def test_a_mode_that_the_server_ignores_is_an_error() -> None:
    said = rf"gives no label in any output format .* json; .* it answered '{PROSE}': the reply is not JSON"
    with FakeChat(knows=NO_MODES) as server, pytest.raises(DarklodeError, match=said):
        _ = judge_of(server, response_format="json").judge_id


def test_a_model_that_gives_no_label_is_an_error() -> None:
    with (
        FakeChat(knows=NO_MODES, says=lambda label: f"It is {label}.") as server,
        pytest.raises(DarklodeError, match=r"it answered 'It is (yes|no)\.': the reply is not a label"),
    ):
        _ = judge_of(server).judge_id


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_survived(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.02)
    with FakeChat() as calm:
        expected = ask(judge_of(calm))
    with FakeChat(hang_seconds=5) as server:
        judge = judge_of(server, timeout=2)
        assert judge.judge_id
        server.served.clear()
        server.script = lambda request: fault if request.time == 1 and "chunk 2" in request.pair else None
        said = ask(judge)
        assert server.faults == {fault: 3}
        assert set(server.served.values()) == {1}
    wrong = fault == "wrong label"
    assert judge.counters.retries == (0 if wrong else 3)
    assert [one["attempts"] for one in said] == [1, 1, 2 if wrong else 1, 1] * 3
    assert what_was_said(said) == what_was_said(expected)


@pytest.mark.slow
def test_thirty_percent_of_faults_change_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.05)
    pairs = pairs_of(20, 20)
    with FakeChat() as calm:
        expected = ask(judge_of(calm), pairs)
    with FakeChat(hang_seconds=10) as server:
        judge = judge_of(server, timeout=4)
        assert judge.judge_id
        server.served.clear()
        server.script = at_random(3, 0.3)
        said = ask(judge, pairs)
        assert set(server.served.values()) == {1}
        assert set(server.faults) == set(FAULTS)
    assert what_was_said(said) == what_was_said(expected)


def test_what_stays_unreadable_is_null_with_its_raw_reply() -> None:
    with FakeChat() as server:
        judge = judge_of(server, max_attempts=2)
        assert judge.judge_id
        server.script = lambda request: "wrong label" if "chunk 1" in request.pair else None
        said = ask(judge)
        again = [body for body in server.bodies if len(body["messages"]) == 4]
    unread = [one for one in said if one["relevant"] is None]
    assert len(unread) == len(again) == 3
    assert {(one["raw_reply"], one["attempts"]) for one in unread} == {(PROSE, 2)}
    assert {one["error"] for one in unread} == {"the reply is not a label"}
    assert all(one["probability"] is None and one["grade"] is None for one in unread)
    assert (judge.counters.nulls, judge.counters.asked_again) == (3, 3)
    assert again[0]["messages"][2] == {"role": "assistant", "content": PROSE}


def thinks(pair: str, said: dict[str, Any]) -> dict[str, Any]:
    """The reply of a server that keeps thoughts apart: their tokens come first, the content's last."""
    (choice,) = said["choices"]
    top = [{"token": "Yes", "logprob": -0.1}, {"token": "no", "logprob": -2.5}]
    thoughts = [{"token": "Yes", "logprob": -0.1, "top_logprobs": top}]
    thoughts += [{"token": text, "logprob": 0.0, "top_logprobs": []} for text in (", maybe", "</think>", "\n\n")]
    ended = [{"token": "<|im_end|>", "logprob": 0.0, "top_logprobs": []}]
    choice["message"]["reasoning_content"] = "Yes, maybe"
    choice["logprobs"]["content"] = [*thoughts, *choice["logprobs"]["content"], *ended]
    return said


def test_a_model_that_thinks_gets_the_same_verdicts() -> None:
    with FakeChat() as calm:
        expected = ask(judge_of(calm))
    with FakeChat(alters=thinks) as server:
        said = ask(judge_of(server))
    assert what_was_said(said) == what_was_said(expected)
    assert {one["relevant"] for one in said} == {True, False}


POISON: dict[str, Callable[[dict[str, Any]], dict[str, Any] | str]] = {
    "a surrogate": lambda said: said | {"choices": [{"finish_reason": "stop", "message": {"content": "so \ud800"}}]},
    "deep content": lambda said: (
        said | {"choices": [{"finish_reason": "stop", "message": {"content": '{"label":' * 10_000}}]}
    ),
    "a deep body": lambda said: '{"choices":' + "[" * 10_000 + "]" * 10_000 + "}",
    "a long number": lambda said: '{"usage": ' + "9" * 5000 + "}",
}
HUGE: list[object] = [2**31, 10**30, -1, "9", 1.5, True, [], None]


@pytest.mark.parametrize("poison", POISON)
def test_a_reply_that_is_poison_costs_its_own_pair_alone(poison: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.02)
    with FakeChat() as server:
        judge = judge_of(server, response_format="json" if poison == "deep content" else "choice")
        assert judge.judge_id
        server.alters = lambda pair, said: POISON[poison](said) if "chunk 2" in pair else said
        said = ask(judge)
    assert [one["relevant"] is None for one in said] == [False, False, True, False] * 3
    errors = {one["error"] for one in said if one["relevant"] is None}
    deep = "(RecursionError)"
    named = {"a deep body": deep, "deep content": deep, "a long number": "(ValueError)"}
    assert all(named.get(poison, "not a label") in error for error in errors), errors
    assert {one["attempts"] for one in said if one["relevant"] is None} == {3}


@pytest.mark.parametrize("tokens", HUGE)
def test_counts_that_cannot_be_are_unknown_and_the_label_stands(tokens: object) -> None:
    usage = {"prompt_tokens": tokens, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": tokens}}
    with FakeChat(alters=lambda _pair, said: said | {"usage": usage}) as server:
        judge = judge_of(server, token_limit=10**9)
        said = ask(judge)
    assert all(one["relevant"] is not None and one["prompt_tokens"] is None for one in said)
    assert 0 < judge.counters.prompt_tokens < 10**6, "what was estimated counts against the limit"


@pytest.mark.parametrize("ended", ["error", "abort"])
def test_a_reply_that_the_server_failed_at_is_asked_for_again(ended: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.02)
    failed: Counter[str] = Counter()

    def fail_once(pair: str, said: dict[str, Any]) -> dict[str, Any]:
        failed[pair] += 1
        return said if failed[pair] > 1 else said | {"choices": [said["choices"][0] | {"finish_reason": ended}]}

    with FakeChat() as calm:
        expected = ask(judge_of(calm))
    with FakeChat(alters=fail_once) as server:
        judge = judge_of(server)
        said = ask(judge)
    assert judge.counters.retries == len(failed) > 12
    assert what_was_said(said) == what_was_said(expected)


def test_a_chunk_over_the_limit_is_cut_and_says_so() -> None:
    pairs = pairs_of(1, 4, text="chunk {} " + "word " * 400)
    with FakeChat() as server:
        said = ask(judge_of(server, max_chunk_tokens=50), pairs)
        longest = max(len(body["messages"][1]["content"]) for body in server.bodies[2:])
    assert {one["truncated"] for one in said} == {True}
    assert longest < 500


def test_a_chunk_that_the_server_finds_too_long_is_cut_to_half_once() -> None:
    long = pairs_of(1, 2, text="chunk {} " + "word " * 800)
    short = pairs_of(2, 2).slice(2)
    pairs = pa.concat_tables([short, long])
    with FakeChat() as server:
        judge = judge_of(server, max_chunk_tokens=4000)
        assert judge.judge_id
        server.longest = len(server.bodies[-1]["messages"][0]["content"]) // 4 + 700
        said = ask(judge, pairs)
        assert [one["truncated"] for one in said] == [False, False, True, True]
        assert all(one["relevant"] is not None for one in said)
        server.longest = 1000
        refused = ask(judge, pairs)
    assert [one["relevant"] for one in refused] == [None] * 4
    assert all("maximum context length is 1000" in one["error"] for one in refused)


@pytest.mark.parametrize("first", ["a refusal", "a reply that cannot be read"])
def test_a_pair_that_the_server_refused_is_not_asked_again(tmp_path: Path, first: str) -> None:
    pairs = pairs_of(1, 4, text="chunk {} " + "word " * 800)

    def too_long_again(pair: str, said: dict[str, Any]) -> dict[str, Any]:
        server.longest = 1000
        return said | {"choices": [{"finish_reason": "stop", "message": {"content": PROSE}}]}

    with FakeChat() as server:
        judge = judge_of(server, root=str(tmp_path))
        assert judge.judge_id
        if first == "a refusal":
            server.longest = 1000
        else:
            server.alters = too_long_again
        said = asyncio.run(LedgerJudge(judge, Ledger(str(tmp_path)), attempts=3).judge(pairs))
        assert said["relevant"].null_count == 4
        assert all("maximum context length is 1000" in error for error in said["error"].to_pylist())
        again = LedgerJudge(judge_of(server, root=str(tmp_path)), Ledger(str(tmp_path)), attempts=3)
        asked = server.requests
        assert asyncio.run(again.judge(pairs)) == said
        assert server.requests == asked


def test_pair_after_pair_refused_stops_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darklode.pipeline.judge.llm.judge.MAX_CONSECUTIVE_REFUSALS", 5)
    with FakeChat() as server:
        judge = judge_of(server)
        assert judge.judge_id
        server.refuses = frozenset({"choice"})
        with pytest.raises(DarklodeError, match=r"refused 5 consecutive pairs.*unknown parameter"):
            ask(judge)


def stop_after(n: int, fault: str) -> Callable[[Request], str | None]:
    return lambda request: fault if request.number > n else None


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["503", "dropped", "html", "429"])
def test_a_server_that_goes_down_for_good_costs_no_answer(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.02)
    monkeypatch.setattr(replicas, "FIRST_PAUSE", 0.05)
    lines: list[str] = []
    with FakeChat() as server:
        given = LlmSettings(model="fake", base_url=server.url, retry_timeout=1, max_concurrency=8)
        judge = LlmJudge(given, lines.append)
        assert judge.judge_id
        server.served.clear()
        server.script = stop_after(server.requests + 100, fault)
        came: list[ReplyBatch] = []
        with pytest.raises(DarklodeError, match=r"No answer for 1 s .* are kept: run again"):
            asyncio.run(collect(judge, pairs_of(20, 20), came))
        assert sum(len(some.rows) for some in came) == len(server.served) == 100
    assert any("20 times in a row" in line and "gives up in" in line for line in lines)


@pytest.mark.slow
def test_a_server_that_comes_back_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.02)
    monkeypatch.setattr(replicas, "FIRST_PAUSE", 0.05)
    lines: list[str] = []
    with FakeChat() as server:
        judge = LlmJudge(LlmSettings(model="fake", base_url=server.url), lines.append)
        assert judge.judge_id
        until = time.monotonic() + 1
        server.script = lambda _request: "503" if time.monotonic() < until else None
        assert all(one["relevant"] is not None for one in ask(judge, pairs_of(10, 10)))
    assert "answers again" in lines[-1]
    assert judge.counters.paused == ""


def test_a_pair_on_which_the_server_always_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.02)
    with FakeChat(latency=0.05) as server:
        judge = judge_of(server, retry_timeout=0.5, max_concurrency=2)
        assert judge.judge_id
        server.script = lambda request: "500" if "chunk 0 says" in request.pair else None
        with pytest.raises(DarklodeError, match=r"answered 500; the call for q000 and c000 has failed for 0\.5 s"):
            ask(judge, pairs_of(1, 60))


@pytest.mark.parametrize(("changed", "message"), [({"model": "other"}, "answered 404.*other does not exist")])
def test_an_unknown_model_is_named(changed: dict[str, Any], message: str) -> None:
    with FakeChat() as server, pytest.raises(MissingPart, match=message):
        _ = judge_of(server, **changed).judge_id


def test_nobody_there_is_an_error_after_a_while() -> None:
    judge = LlmJudge(LlmSettings(model="fake", base_url="http://127.0.0.1:1/v1", retry_timeout=0.5))
    with pytest.raises(DarklodeError, match=r"127\.0\.0\.1:1/v1 cannot be reached .* No answer for 0\.5 s"):
        _ = judge.judge_id


def test_a_querys_pairs_stay_on_one_replica() -> None:
    pairs = pairs_of(40, 5)
    with FakeChat() as one, FakeChat() as other:
        ask(judge_of(one, other, max_concurrency=4), pairs)
        asked = [{*re.findall(r"how to do \d+", " ".join(server.served))} for server in (one, other)]
    assert len(asked[0] & asked[1]) <= 1  # the last query's pairs go to whoever is free
    assert min(map(len, asked)) > 8
    assert len(asked[0] | asked[1]) == 40


def test_the_pairs_of_a_dead_replica_go_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.02)
    with FakeChat() as one, FakeChat() as other:
        judge = judge_of(one, other)
        assert judge.judge_id
        one.script = lambda _request: "dropped"
        assert all(said["relevant"] is not None for said in ask(judge, pairs_of(20, 10)))


def test_rows_are_ordered_by_query() -> None:
    shuffled = pairs_of(5, 6).take(np.random.default_rng(3).permutation(30))
    groups = list(by_query(shuffled))
    assert [len({*shuffled["query"].take(rows).to_pylist()}) for rows in groups] == [1] * 5
    assert sorted(itertools.chain(*groups)) == list(range(30))
    assert list(by_query(PAIRS.empty_table())) == []


@pytest.mark.parametrize("limit", [{"token_limit": 30_000}, {"spending_limit": 0.03, "prompt_price_per_million": 1}])
def test_a_limit_stops_cleanly(limit: dict[str, Any], tmp_path: Path) -> None:
    with FakeChat(latency=0.01) as server:
        judge = LlmJudge(LlmSettings(model="fake", base_url=server.url, **limit), root=str(tmp_path))
        assert judge.judge_id
        server.served.clear()
        came: list[ReplyBatch] = []
        with pytest.raises(DarklodeError, match=rf"judge\.{next(iter(limit))} .* would be exceeded.* are kept"):
            asyncio.run(collect(judge, pairs_of(10, 10), came))
        assert sum(len(some.rows) for some in came) == len(server.served) == sum(server.served.values()) > 10
    spent = judge.counters
    assert 20_000 < spent.prompt_tokens + spent.completion_tokens <= 30_000
    assert spent.cost == pytest.approx(spent.prompt_tokens / 1e6 if "spending_limit" in limit else 0)


@pytest.mark.slow
def test_calls_under_way_stay_within_the_limit_and_reach_it() -> None:
    with FakeChat(latency=0.02) as server:
        ask(judge_of(server, max_concurrency=40), pairs_of(40, 40))
        assert server.most_at_once == 40


@pytest.mark.slow
@pytest.mark.parametrize("status", ["429", "503"])
def test_the_pace_follows_a_server_that_turns_calls_away(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.02)
    lines: list[str] = []
    with FakeChat(latency=0.1) as server:
        judge = LlmJudge(LlmSettings(model="fake", base_url=server.url), lines.append)
        assert judge.judge_id
        server.script = lambda _request: status if server.working >= 8 else None
        ask(judge, pairs_of(20, 20))
        assert judge.counters.limit < 40
        assert sum(server.served.values()) == 400 + PROBES
    assert lines == []


def test_counters_add_up() -> None:
    with FakeChat() as server:
        judge = judge_of(server)
        assert judge.judge_id
        probed = judge.counters.prompt_tokens
        said = ask(judge)
    found = judge.counters
    assert (found.answered, found.nulls, found.in_flight, found.truncated) == (12, 0, 0, 0)
    assert found.prompt_tokens - probed == sum(one["prompt_tokens"] for one in said)
    assert found.cached_tokens == sum(one["cached_tokens"] for one in said) > 0
    assert (found.completion_tokens, found.calls) == (12 + PROBES, 12 + PROBES)
    assert probed > 0


def test_no_pairs_no_calls() -> None:
    with FakeChat() as server:
        judge = judge_of(server)
        assert judge.judge_id
        before = server.requests
        came: list[ReplyBatch] = []
        asyncio.run(collect(judge, PAIRS.empty_table(), came))
        assert (came, server.requests) == ([], before)


def test_closing_the_iterator_gives_up_the_rest() -> None:
    async def first(judge: LlmJudge) -> ReplyBatch:
        replies = judge.stream(pairs_of(20, 20))
        some = await anext(replies)
        await replies.aclose()
        return some

    with FakeChat(latency=0.05) as server:
        judge = judge_of(server, max_concurrency=4)
        assert judge.judge_id
        assert 0 < len(asyncio.run(first(judge)).rows) < 50
        assert server.requests < 60


SECRET = "sk-very-secret-0123"


@pytest.mark.parametrize("wrong", [False, True])
def test_the_key_is_sent_and_shows_up_nowhere(
    wrong: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    caplog.set_level(logging.DEBUG)
    with FakeChat(key="another" if wrong else SECRET) as server:
        judge = judge_of(server, api_key_env="JUDGE_KEY")
        shown = repr(judge) + repr(vars(judge)["_settings"])
        if wrong:
            with pytest.raises(MissingPart, match=r"rejected the key in JUDGE_KEY, status 401") as caught:
                _ = judge.judge_id
            shown += "".join(traceback.format_exception(caught.value))
        else:
            ask(judge)
            shown += judge.judge_id + repr(judge.counters)
            assert Counter(head["authorization"] for head in server.headers) == {f"Bearer {SECRET}": server.requests}
    assert SECRET not in shown + caplog.text


def test_a_server_that_repeats_the_key_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "fake")
    with FakeChat(key="fake") as server:
        server.model = "another"
        with pytest.raises(DarklodeError, match=r"The model \(the key\) does not exist"):
            _ = judge_of(server, api_key_env="JUDGE_KEY").judge_id


def test_no_key_is_sent_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with FakeChat() as server:
        ask(judge_of(server))
        assert not any("authorization" in head for head in server.headers)


def test_a_missing_key_and_a_secret_in_the_address_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with FakeChat() as server, pytest.raises(MissingPart, match="set the environment variable JUDGE_KEY"):
        ask(judge_of(server, api_key_env="JUDGE_KEY"))
    with pytest.raises(SettingsError, match="there is no prompt nothing"):
        LlmJudge(LlmSettings(model="m", base_url="http://h/v1", prompt="nothing"))


@pytest.mark.parametrize("late", [0.0, 0.001, 0.01])
def test_replies_that_are_sent_twice_label_no_other_pair(late: float) -> None:
    pairs = pairs_of(14, 12)
    with FakeChat(script=lambda one: "sent twice" if one.number % 5 == 0 else None, twice_after=late) as server:
        judge = judge_of(server, max_concurrency=4)
        found: list[ReplyBatch] = []
        asyncio.run(collect(judge, pairs, found))
        rows = {row: reply for batch in found for row, reply in zip(batch.rows, batch.replies.to_pylist(), strict=True)}
        assert sorted(rows) == list(range(168))
        user = [judge.template.fit_pair(PairText(*texts), 2048)[0] for texts in texts_of(pairs)]
        assert [rows[row]["relevant"] for row in range(168)] == [label_of(one, server.labels) == "yes" for one in user]
        assert server.faults["sent twice"] > 20


def texts_of(pairs: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in pairs.select(["query", "title", "heading", "text"]).to_pylist()]
