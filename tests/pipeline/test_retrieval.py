"""What retrieval took: summed over tenants, remembered for lists that stood, unknown where it is unknown."""

from test_search import ASKED, TWO_TENANTS, chunks, queries

from conftest import execute, put
from pipeline.artifacts import Output, Run, Tables
from pipeline.retrieval import RETRIEVAL, retrieval
from pipeline.retrievers.corpus import Corpus
from pipeline.retrievers.embedded import EMBEDDED
from pipeline.retrievers.port import Retriever
from pipeline.search import SEARCH, search
from schemas.settings import PoolSettings


def bm25(corpus: Corpus) -> Retriever:
    return EMBEDDED["bm25"](corpus)


def searched(run: Run, embedding: dict[str, object]) -> list[dict[str, object]]:
    def work(tables: Tables, output: Output) -> None:
        output.facts["embedding"] = embedding
        search(tables, output, PoolSettings(), retrievers={"bm25": bm25, "neural": bm25})

    execute(run, SEARCH, work)
    rows: list[dict[str, object]] = retrieval(run).to_pylist()
    return rows


def test_before_the_first_search_there_is_nothing(run: Run) -> None:
    assert retrieval(run).schema.equals(RETRIEVAL)
    assert retrieval(run).num_rows == 0


def test_rows_sum_over_tenants_and_lists_that_stood_still_count(run: Run) -> None:
    put(run, "queries", queries(ASKED))
    put(run, "chunks", chunks(TWO_TENANTS))
    work = {"texts": 10, "encoded": 4, "seconds": 2.0, "bytes": 64, "cost": 0.5, "gpu": None}
    first = searched(run, {"neural": work})
    assert [row["retriever"] for row in first] == ["bm25", "neural"]
    assert [row["chunks"] for row in first] == [len(TWO_TENANTS)] * 2
    assert [first[0][name] for name in ("encoded", "cache_hits", "bytes_cached", "cost", "gpu", "recall")] == [None] * 6
    found = {name: first[1][name] for name in ("chunks_per_second", "encoded", "cache_hits", "bytes_cached", "cost")}
    assert found == {"chunks_per_second": 2.0, "encoded": 4, "cache_hits": 0.6, "bytes_cached": 64, "cost": 0.5}
    put(run, "queries", queries([*ASKED[:-1], (ASKED[-1][0], ASKED[-1][1], "other words")]))
    second = searched(run, {"neural": work | {"encoded": 0, "seconds": 0.0}})
    assert [row["chunks"] for row in second] == [len(TWO_TENANTS)] * 2
    assert second[1]["chunks_per_second"] is None, "nothing was encoded: no rate, which is not 0"
    assert second[1]["cache_hits"] == 1.0


def test_indexes_of_chunks_that_are_gone_are_deleted(run: Run) -> None:
    put(run, "queries", queries(ASKED))
    put(run, "chunks", chunks(TWO_TENANTS))
    searched(run, {})
    before = run.store.folders("indexes")
    put(run, "chunks", chunks([*TWO_TENANTS[:-1], (*TWO_TENANTS[-1][:2], "quite another text")]))
    searched(run, {})
    after = run.store.folders("indexes")
    assert (len(before), len(after), len({*before, *after})) == (2, 2, 3)
