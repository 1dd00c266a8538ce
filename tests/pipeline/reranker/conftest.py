"""One trained reranker for all tests here."""

import pytest

from helpers.reranked import RerankedRun, reranked_run


@pytest.fixture(scope="session")
def reranked(tmp_path_factory: pytest.TempPathFactory) -> RerankedRun:
    """Nobody writes to it."""
    pytest.importorskip("sentence_transformers")
    return reranked_run(tmp_path_factory.mktemp("reranked"))
