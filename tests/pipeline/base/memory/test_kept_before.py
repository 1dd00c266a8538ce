"""What earlier versions paid for is found: `kept_before` is a cache root that the version before the keyed store wrote.

Three parts of verdicts of judge@1, two of them merged, and two shards of encoder@1.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from helpers.hash_encoder import content_hash
from helpers.scripted_stream import ScriptedStream, pairs

HASHES = [content_hash(str(number)) for number in range(5)]


@pytest.fixture
def root(tmp_path: Path) -> str:
    shutil.copytree(Path(__file__).parent / "kept_before", tmp_path / "cache")
    return str(tmp_path / "cache")


def test_verdicts_are_found_and_merged(root: str) -> None:
    ledger = Ledger(root)
    (before,) = ledger.usage().to_pylist()
    assert (before["judge_id"], before["verdicts"], before["relevant"], before["nulls"]) == ("judge@1", 4, 2, 1)
    assert (before["prompt_tokens"], before["parts"], before["damaged"]) == (100, 2, [])
    every = pairs((1, 1), (1, 2), (2, 1), (3, 3), (9, 9))
    for _ in range(2):
        found = ledger.open("judge@1").find(every)
        assert found.rows.tolist() == [0, 1, 2, 3]
        assert found.values["raw_reply"].to_pylist() == ["yes", "no", "at last", "see RFC 2119"]
        assert found.values["attempts"].to_pylist() == [1, None, None, 2]
        ledger.merge("judge@1")
    assert len(ledger.parts.names("judge@1")) == 1


def test_verdicts_are_not_paid_for_again(root: str) -> None:
    source = ScriptedStream(judge_id="judge@1")
    judge = LedgerJudge(source, Ledger(root))
    asyncio.run(judge.judge(pairs((1, 1), (1, 2), (2, 1), (3, 3), (9, 9))))
    assert (judge.hits, judge.n_requested) == (4, 1)


def test_vectors_are_found_beside_new_ones(root: str) -> None:
    cache = EmbeddingCache(root, "float32")
    assert cache.missing("encoder@1", HASHES).tolist() == [0, 4]
    cache.append("encoder@1", HASHES[:2], np.ones((2, 4), np.float32))
    shards = cache.open("encoder@1")
    assert shards is not None
    assert shards.longest == pytest.approx(np.linalg.norm([9, 10, 11, 12]))
    found = shards.take(shards.find(keys_of(HASHES[:4])))
    assert found.tolist() == [[1, 1, 1, 1], [1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    assert cache.usage()["orphans"].to_pylist() == [0]
