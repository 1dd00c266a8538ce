"""Labels that nobody should believe."""

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.judge.recorded import AMBIGUOUS_DOCUMENT, NOT_RECORDED
from darklode.pipeline.report.caveats import caveats, ranked_caveats, weak_labels
from darklode.schemas.evaluation_tables import AUDIT_RETRIEVERS
from darklode.schemas.label_tables import QRELS, UNJUDGED
from darklode.schemas.settings import Settings
from darklode.schemas.tables import FUNNEL, TABLES
from helpers.judge_tables import chunks, queries
from helpers.runs import put, written


def implausible(run: Run, positives: list[int], negatives: int = 0, recall: tuple[float, ...] = (0.5, 1.0)) -> str:
    """What is said of a run whose queries have so many positives and negatives each."""
    names = [f"q{number}" for number in range(len(positives))]
    put(run, "queries", queries("t", {name: name for name in names}))
    rows = [
        {"tenant": "t", "query_id": name, "chunk_id": f"c{place}", "relevance": int(place < n), "source": "judge"}
        for name, n in zip(names, positives, strict=True)
        for place in range(n + negatives)
    ]
    put(run, "qrels", pa.Table.from_pylist(rows, schema=QRELS.schema))
    figures = {name: 0.5 for name in AUDIT_RETRIEVERS.schema.names if name not in {"tenant", "retriever"}}
    found = [figures | {"tenant": None, "retriever": f"r{n}", "recall_at_depth": one} for n, one in enumerate(recall)]
    counts = {"unique_positives": 1, "positives": 1, "queries": 1}
    audited = pa.Table.from_pylist([row | counts for row in found], schema=AUDIT_RETRIEVERS.schema)
    put(run, "audit_retrievers", audited)
    return next((one for one in caveats(all_tables(run), Settings()) if "implausible" in one), "")


def test_more_than_twenty_positives_of_half_of_the_answered_queries_are_implausible(run: Run) -> None:
    assert "half of the answered queries have at least 21 positives" in implausible(
        run, [0, 0, 21, 21, 40], negatives=200
    )


def test_more_than_a_quarter_of_the_candidates_relevant_is_implausible(run: Run) -> None:
    assert "30% of the candidates are relevant" in implausible(run, [3, 3], negatives=7)


def test_given_labels_are_not_blamed_on_the_judge(run: Run) -> None:
    assert implausible(run, [40, 40])
    rows = run.tables("qrels").read("qrels").to_pylist()
    put(run, "qrels", pa.Table.from_pylist([row | {"source": "human"} for row in rows[1:]] + rows[:1], QRELS.schema))
    assert not next((one for one in caveats(all_tables(run), Settings()) if "implausible" in one), "")


def test_recorded_verdicts_that_are_missing_are_told_from_unreadable_ones(run: Run) -> None:
    errors = [NOT_RECORDED, NOT_RECORDED, AMBIGUOUS_DOCUMENT, "prose"]
    rows = [{"tenant": "t", "query_id": "q", "chunk_id": str(n), "error": error} for n, error in enumerate(errors)]
    written(run, "verdicts", [row | {"judge_id": "recorded-1:a"} for row in rows])
    (sentence,) = [one for one in caveats(all_tables(run), Settings()) if "no readable verdict" in one]
    assert sentence.endswith(f"negatives (2 {NOT_RECORDED}; 1 {AMBIGUOUS_DOCUMENT}).")


def test_pairs_that_adaptive_judging_left_out_are_candidates_too(run: Run) -> None:
    """The likeliest were judged: of them alone a share says nothing of the judge."""
    left = {"tenant": ["t"] * 4, "query_id": ["q0"] * 4, "chunk_id": [f"left{n}" for n in range(4)]}
    put(run, "unjudged", UNJUDGED.rows(left))
    assert not implausible(run, [3, 3], negatives=7)
    assert "31% of the candidates are relevant" in implausible(run, [4, 4], negatives=7)


def test_retrievers_that_all_find_everything_are_implausible(run: Run) -> None:
    assert "every retriever finds at least 99%" in implausible(run, [1], negatives=9, recall=(0.99, 1.0))
    put(run, "chunks", chunks("t", {"c0": "a corpus that any list holds"}))
    assert not implausible(run, [1], negatives=9, recall=(0.99, 1.0))


@pytest.mark.parametrize(
    ("positives", "negatives", "recall"), [([20, 20], 60, (0.98, 1.0)), ([0], 0, (1.0,)), ([], 0, ())]
)
def test_labels_at_the_limits_and_labels_that_are_not_there_are_not_called_implausible(
    run: Run, positives: list[int], negatives: int, recall: tuple[float, ...]
) -> None:
    assert not implausible(run, positives, negatives, recall)


@pytest.mark.parametrize(("lost", "said"), [(20, True), (5, False)])
def test_certain_positives_that_became_no_triplet_are_said_with_their_reason(run: Run, lost: int, said: bool) -> None:
    step = {"position": 0, "step": "triplets", "unit_in": "possible positives", "unit_out": "triplets"}
    reasons = {
        "uncertain by labels.training_precision": 300,
        "beyond triplets.max_positives": 100,
        "positive of a held-out query": lost,
    }
    counts = {"rows_in": 500, "rows_out": 100 - lost}
    rows = [step | counts | {"reason": reason, "dropped": dropped} for reason, dropped in reasons.items()]
    put(run, "funnel", pa.Table.from_pylist(rows, schema=FUNNEL.schema))
    sentence = (
        "Only 80 of 100 training positives became triplets. Reasons for the others: 20 positive of a held-out query."
    )
    assert (sentence in caveats(all_tables(run), Settings())) is said


@pytest.mark.parametrize(("weight", "said"), [(0.6, True), (0.8, False), (None, False)])
def test_test_labels_that_miss_the_wanted_precision_are_said(run: Run, weight: float | None, said: bool) -> None:
    rows = queries("t", {"q": "q"})
    split = rows.schema.get_field_index("split")
    put(run, "queries", rows.set_column(split, rows.schema.field("split"), pa.array(["test"])))
    label = {"tenant": "t", "query_id": "q", "chunk_id": "c", "relevance": 1, "source": "judge", "weight": weight}
    put(run, "qrels", pa.Table.from_pylist([label], schema=QRELS.schema))
    sentences = [one for one in caveats(all_tables(run), Settings()) if "labels.test_precision (80%)" in one]
    assert [one.startswith("Of the 1 test positives about 60% are relevant") for one in sentences] == [True] * said


@pytest.mark.parametrize(("n", "said"), [(4, True), (3, False)])
def test_many_training_queries_without_a_positive_are_said(run: Run, n: int, said: bool) -> None:
    put(run, "queries", queries("t", {f"q{number}": "q" for number in range(n)}))
    triplets = [triplet("t", f"q{number}") for number in range(2)]
    put(run, "triplets", pa.Table.from_pylist(triplets, schema=TABLES["triplets"].schema))
    sentence = f"Only 2 of {n} train and validation queries have a training positive."
    assert any(one.startswith(sentence) for one in caveats(all_tables(run), Settings())) is said


def triplet(tenant: str, query: str) -> dict[str, object]:
    row = {"triplet_id": f"{tenant}{query}", "tenant": tenant, "query_id": query, "query": query, "positive_id": "c"}
    return (
        row
        | {"positive": "", "negative_ids": [], "negatives": [], "negative_scores": [], "source": "pooled"}
        | {"split": "train"}
    )


def test_wrong_labels_come_before_noise_and_lost_training_data(run: Run) -> None:
    implausible(run, [0, 0, 21, 21, 40], negatives=200)
    headlines = [caveat.headline for caveat in ranked_caveats(all_tables(run), Settings())]
    assert headlines[:2] == ["The labels are implausible", "Only 0 test queries have a positive"]
    assert headlines[-1] == "Many queries have no training positive"
    assert all(caveat.figure for caveat in ranked_caveats(all_tables(run), Settings()))


def test_weak_labels_are_those_of_the_embedded_judge() -> None:
    assert [caveat.figure for caveat in weak_labels(["llm-1:x", "embedded-3:00ff"])] == ["judges"]
    assert weak_labels(["llm-1:embedded"]) == []
