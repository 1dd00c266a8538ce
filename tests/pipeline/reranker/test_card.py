"""The card: decision, bounds and cost."""

from helpers.reranked import RerankedRun


def test_the_card_names_decision_bounds_and_cost(reranked: RerankedRun) -> None:
    page = (reranked.out.store.read("README.md") or b"").decode()
    for part in ("pipeline_tag: text-ranking", "Released: reranker.", "a bi-encoder, with a new head", "79 positives"):
        assert part in page
    for part in (
        "| candidates in the best order |",
        "ms per query for 10 candidates on one core",
        'CrossEncoder("reranker")',
    ):
        assert part in page
