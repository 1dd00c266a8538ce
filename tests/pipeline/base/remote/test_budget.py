"""Limits that hold over runs: what earlier ones spent at the same account counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote.budget import Budget, Counters, SpendingLedger, Usage, tokens_used
from darklode.pipeline.base.remote.endpoint import Endpoint
from darklode.pipeline.retrieve.encoders.kinds.openai import OpenAISettings
from darklode.pipeline.retrieve.encoders.openai import OpenAIEncoder
from helpers.fake_openai import FakeOpenAI, scripted

TEXTS = [f"text number {number}" for number in range(8)]


def encoder(server: FakeOpenAI, root: Path, **given: Any) -> OpenAIEncoder:
    given = {"model": "fake-1", "base_url": server.url, "api_key_env": "", "price_per_million": 1e6} | given
    return OpenAIEncoder(OpenAISettings(**given, batch_size=1, max_concurrency=1), str(root))


def test_entries_add_up_by_account(tmp_path: Path) -> None:
    one, other = (SpendingLedger(str(tmp_path), name) for name in ("judge m at h", "planner m at h"))
    assert one.total() == (Usage(0, 0), 0.0)
    one.add(Usage(10, 2), 0.5)
    SpendingLedger(str(tmp_path), "judge m at h").add(Usage(1, 0), 0.25)
    assert one.total() == (Usage(11, 2), 0.75)
    assert other.total() == (Usage(0, 0), 0.0)


def test_a_second_run_with_the_same_limit_counts_the_first(tmp_path: Path) -> None:
    with FakeOpenAI() as server:
        first = encoder(server, tmp_path)  # no limit yet
        first.encode_documents(TEXTS)
        paid = first.cost
        assert paid == sum(len(text) // 4 + 1 for text in TEXTS)
        second = encoder(server, tmp_path, spending_limit=paid + 12)
        with pytest.raises(
            DarklodeError, match=r"spending_limit .* would be exceeded.* by other runs, recorded in .*spending"
        ):
            second.encode_queries(TEXTS)
        assert 0 < second.cost <= 12
        assert SpendingLedger(str(tmp_path), f"encoder fake-1 at {server.url[7:]}").total()[1] == paid + second.cost
        elsewhere = encoder(server, tmp_path / "other", spending_limit=paid + 12)
        elsewhere.encode_queries(TEXTS[:2])


def test_replies_that_were_retried_or_could_not_be_read_count_as_the_server_says(tmp_path: Path) -> None:
    with FakeOpenAI(script=scripted(n1="500", n2="nan")) as server:
        one = encoder(server, tmp_path)
        one.encode_queries(["tea"])
        assert one.cost == 2 * (len("tea") // 4 + 1)


def test_a_model_without_price_and_limit_keeps_no_book(tmp_path: Path) -> None:
    with FakeOpenAI() as server:
        encoder(server, tmp_path, price_per_million=0).encode_queries(["tea"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "estimate", "tokens"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 2}, Usage(90, 9), Usage(7, 2)),
        ({"prompt_tokens": 7, "total_tokens": 7}, Usage(90, 0), Usage(7, 0)),
        ({"prompt_tokens": 7, "total_tokens": 7}, Usage(90, 9), Usage(90, 9)),
        ({"prompt_tokens": -1, "completion_tokens": 2}, Usage(90, 9), Usage(90, 9)),
        ({"prompt_tokens": True, "completion_tokens": 2}, Usage(90, 9), Usage(90, 9)),
        ("many", Usage(90, 9), Usage(90, 9)),
        (None, Usage(90, 9), Usage(90, 9)),
    ],
    ids=["both", "embeddings", "half of a chat", "negative", "no number", "no object", "nothing"],
)
def test_tokens_are_those_that_the_server_counted_or_the_estimate(said: object, estimate: Usage, tokens: Usage) -> None:
    assert tokens_used({"usage": said}, estimate) == tokens


def test_what_could_exceed_a_limit_waits_for_what_is_under_way_and_is_refused_alone() -> None:
    counters = Counters()
    prices = {"prompt_price": 1e6, "completion_price": 0.0, "spending_limit": 10.0}
    at = Endpoint("judge", "m", ("http://127.0.0.1:1/v1",), "/x", "", 4, 1.0, 1.0, **prices)  # type: ignore[arg-type]
    budget = Budget(at, counters, None)
    budget.reserve(Usage(6, 0))
    assert budget.must_wait(Usage(5, 0)), "the call under way may take less than was set aside"
    assert not budget.must_wait(Usage(4, 0))
    budget.settle(Usage(6, 0), Usage(2, 0))
    assert not budget.must_wait(Usage(5, 0))
    budget.reserve(Usage(5, 0))
    budget.settle(Usage(5, 0), Usage(5, 0))
    assert counters.cost == 7.0
    with pytest.raises(DarklodeError, match=r"judge\.spending_limit 10 would be exceeded: 7 tokens and 7\.0000 spent"):
        budget.reserve(Usage(4, 0))
