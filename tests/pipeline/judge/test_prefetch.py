"""Asking ahead in shards: the stage finds every reply, no pair is paid for twice, and limits hold over all workers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Manifest, Output, Run, Tables
from darklode.pipeline.base.errors import LimitReached
from darklode.pipeline.base.remote.budget import SpendingLedger, Usage
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.judge.llm.judge import endpoint_of
from darklode.pipeline.judge.port import QUERY_BLOCK
from darklode.pipeline.judge.prefetch import prefetch_verdicts
from darklode.pipeline.judge.stage import JUDGE, judge
from darklode.schemas.settings import Settings
from helpers.elsewhere import Elsewhere
from helpers.fake_chat import FakeChat
from helpers.hash_encoder import content_hash
from helpers.judge_tables import chunks, pool, queries
from helpers.runs import execute, put

TEXTS = {f"c{number}": f"chunk {number}" for number in range(3)}
SIZES = {"a": 2 * QUERY_BLOCK + 5, "b": 1, "c": QUERY_BLOCK}
PAIRS = 3 * sum(SIZES.values())


@pytest.fixture
def server() -> Iterator[FakeChat]:
    with FakeChat(latency=0.01) as fake:
        yield fake


@pytest.fixture
def pooled(run: Run) -> Run:
    """Three tenants: three blocks of queries, one query, one block."""
    asked = {t: {f"q{number:03}": f"{t} asks {number}" for number in range(size)} for t, size in SIZES.items()}
    hashes = {"content_hash": [content_hash(text) for text in TEXTS.values()]}
    put(run, "queries", pa.concat_tables(queries(t, texts) for t, texts in asked.items()))
    put(run, "chunks", pa.concat_tables(chunks(t, TEXTS, **hashes) for t in SIZES))
    put(run, "pool", pa.concat_tables(pool(t, [(q, c) for q in texts for c in TEXTS]) for t, texts in asked.items()))
    return run


def judges(server: FakeChat, root: Path, **changed: Any) -> Judges:
    section = {"kind": "llm", "model": "fake", "base_url": server.url, "retry_timeout": 20} | changed
    return Judges.from_settings(Settings.model_validate({"judge": section, "cache": {"root": str(root)}}))


def judged(run: Run, by: Judges, *, spread: Elsewhere | None = None) -> Manifest:
    def work(tables: Tables, output: Output) -> None:
        if spread:
            prefetch_verdicts(tables, output, by.settings, by.cache, spread)
        judge(tables, output, by.settings, judge_for=by)

    return execute(run, JUDGE, work)


def served(server: FakeChat) -> list[int]:
    """How often each pair of the pool was answered."""
    return [times for pair, times in server.served.items() if " asks " in pair]


def rows(run: Run) -> pa.Table:
    """Verdicts, but what the server's cache served of their calls."""
    return run.tables("verdicts").read("verdicts").drop_columns(["cached_tokens"])


@pytest.mark.slow
def test_the_stage_finds_every_reply_and_makes_no_call(pooled: Run, server: FakeChat, tmp_path: Path) -> None:
    elsewhere = Elsewhere(pooled.store, 3, at_once=3)
    facts = judged(pooled, judges(server, tmp_path / "cache"), spread=elsewhere).facts
    assert (facts["hits"], facts["asked"]) == (PAIRS, 0)
    assert served(server) == [1] * PAIRS
    assert elsewhere.names == [
        "judge a blocks 0 to 0 and 0 more",
        "judge a blocks 1 to 1 and 0 more",
        "judge a blocks 2 to 2 and 0 more",
        "judge b blocks 0 to 0 and 0 more",
        "judge c blocks 0 to 0 and 0 more",
    ]
    ahead = rows(pooled)
    pooled.store.delete("manifests/judge.json")
    judged(pooled, judges(server, tmp_path / "other"))
    assert rows(pooled).equals(ahead)
    assert ahead.num_rows == PAIRS


@pytest.mark.slow
@pytest.mark.parametrize(("places", "most"), [(2, 8), (4, 3)])
def test_calls_under_way_are_those_of_one_judge(
    pooled: Run, server: FakeChat, tmp_path: Path, places: int, most: int
) -> None:
    elsewhere = Elsewhere(pooled.store, places, at_once=places)
    judged(pooled, judges(server, tmp_path, max_concurrency=most), spread=elsewhere)
    assert 1 < server.most_at_once <= most
    assert served(server) == [1] * PAIRS


@pytest.mark.slow
def test_a_limit_holds_over_all_workers_and_is_used_up(pooled: Run, server: FakeChat, tmp_path: Path) -> None:
    limited = judges(server, tmp_path, token_limit=300_000, max_concurrency=8)
    with pytest.raises(LimitReached, match=r"judge\.token_limit 300,000 would be exceeded: "):
        judged(pooled, limited, spread=Elsewhere(pooled.store, 4, at_once=4))
    usage, _ = SpendingLedger(str(tmp_path), endpoint_of(limited.settings).account).total()  # type: ignore[arg-type]
    assert 280_000 < sum(usage) <= 300_000
    assert 100 < len(served(server)) < PAIRS
    judged(pooled, judges(server, tmp_path), spread=Elsewhere(pooled.store, 4, at_once=4))
    assert served(server) == [1] * PAIRS


def test_a_portion_is_of_what_is_left(server: FakeChat, tmp_path: Path) -> None:
    one: Any = judges(server, tmp_path, token_limit=1000, spending_limit=3.0, prompt_price_per_million=1e6).settings
    SpendingLedger(str(tmp_path), endpoint_of(one).account).add(Usage(150, 50), 1.0)
    mine = one.portion(judges(server, tmp_path).cache, 0.25, 3)
    assert (mine.local_portion.tokens, mine.local_portion.money, mine.max_concurrency) == (200, 0.5, 85)
    assert (mine.token_limit, mine.spending_limit) == (1000, 3.0)


def test_a_judge_that_keeps_nothing_is_not_asked_ahead(pooled: Run) -> None:
    embedded, elsewhere = Judges.from_settings(Settings()), Elsewhere(pooled.store, 2)
    judged(pooled, embedded, spread=elsewhere)
    assert elsewhere.names == []
