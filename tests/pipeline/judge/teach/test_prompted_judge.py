"""The judge that is taught gives the labels that a build gives."""

import asyncio
from pathlib import Path

from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.judge.kinds.llm import LlmJudgeKind
from darklode.pipeline.judge.probe.sample import pairs_of
from darklode.pipeline.judge.teach.examples import TaughtPair
from darklode.pipeline.judge.teach.prompted_judge import PromptedJudge, _row
from darklode.schemas.settings import CacheSettings
from helpers.fake_chat import FakeChat


def test_labels_follow_the_threshold_as_in_a_build(tmp_path: Path) -> None:
    """A grade below `relevant_from` may be the likeliest, and relevance still be likely."""
    pairs = [
        TaughtPair("a", f"q{number:02}", "c", f"query {number}", None, None, f"text {number}", 1, None, None)
        for number in range(60)
    ]
    cache = CacheSettings(root=str(tmp_path))
    with FakeChat(labels=("0", "1", "2", "3")) as server:
        settings = LlmJudgeKind(model="fake", base_url=(server.url,), prompt="graded")
        labels = PromptedJudge(settings, cache)("graded", pairs)
        chunks = TenantChunks.__new__(TenantChunks)  # a language model reads none
        judge = settings.builder(cache)(chunks, settings.cut)
        assert judge.judge_id
        replies = asyncio.run(judge.judge(pairs_of(_row(pair) for pair in pairs)))
        source = settings.source(cache)
        assert judge.judge_id.startswith(source.judge_id)
    assert labels == replies["relevant"].to_pylist()
    assert labels == [probability >= 0.5 for probability in replies["probability"].to_pylist()]
    assert {*labels} == {True, False}
