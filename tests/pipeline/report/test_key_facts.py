"""The facts of the first row: what is known, and what is not and why."""

from datetime import date

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.key_facts import NOT_MEASURED, REVIEW_COMMAND, VALIDATE_COMMAND, KeyFact, key_facts
from darklode.pipeline.validate.review.journal import AnswerJournal
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES
from helpers.adapted import adapted_tables
from helpers.finished_run import finished_run
from helpers.report_runs import opened, random_run, rewrite
from helpers.reviewed_run import answer, pairs, reviewed, rows_of
from helpers.runs import put
from helpers.small_log import mine, random_log


def facts(run: Run, settings: Settings | None = None) -> dict[str, KeyFact]:
    with opened(run, settings) as source:
        return {fact.label: fact for fact in key_facts(source)}


def test_labels_that_nobody_reviewed_are_not_measured_and_say_how(run: Run) -> None:
    found = facts(finished_run(run.store.url))
    assert list(found) == [
        "Queries",
        "Test positives",
        "Training triplets",
        "Precision of the judge",
        "Recall of the judge",
        "Best retriever",
    ]
    precision, recall = found["Precision of the judge"], found["Recall of the judge"]
    assert precision == KeyFact(
        "Precision of the judge", NOT_MEASURED, "nobody has reviewed the labels", "", REVIEW_COMMAND
    )
    assert (recall.value, recall.is_measured) == (NOT_MEASURED, False)


def test_answers_that_were_not_evaluated_lead_to_validate(run: Run) -> None:
    finished_run(run.store.url)
    AnswerJournal(run.store).append(answer(("acme", "q 1", "plain#4"), 1))
    assert facts(run)["Precision of the judge"].note == "1 answers, not evaluated yet"
    assert facts(run)["Precision of the judge"].command == VALIDATE_COMMAND


def test_reviewed_labels_have_precision_and_recall_with_intervals(run: Run) -> None:
    reviewed(run, pairs({"a": 30, "b": 10}), max_pairs=300)
    row = rows_of(run)[None, None]
    for name in ("precision", "recall"):
        fact = facts(run)[f"{name.capitalize()} of the judge"]
        low, middle, high = (f"{100 * row[f'{name}{end}']:.0f}" for end in ("_low", "", "_high"))
        assert fact.value == f"{middle} %"
        assert fact.note == f"95 %: {low}–{high} %; {row['labelled']} pairs reviewed"
        assert int(low) < int(middle) < int(high)


def test_a_review_of_other_verdicts_is_no_measurement(run: Run) -> None:
    reviewed(run, pairs({"a": 30, "b": 10}), max_pairs=300)
    assert facts(run)["Precision of the judge"].value != NOT_MEASURED
    put(run, "verdicts", run.tables("verdicts").read("verdicts").slice(1))
    fact = facts(run)["Precision of the judge"]
    assert (fact.value, fact.command) == (NOT_MEASURED, "darklode validate RUN")


def test_given_labels_were_not_judged(run: Run) -> None:
    random_run(run.store.url, 2)
    found = facts(run, Settings.model_validate({"judge": {"kind": "none"}}))
    assert found["Precision of the labels"].value == "given"
    assert found["Recall of the labels"].value == NOT_MEASURED


def test_the_best_retriever_is_ranked_without_those_that_the_labels_favour(run: Run) -> None:
    best = facts(finished_run(run.store.url))["Best retriever"]
    assert {"bm25", "../dense one"} == {best.value[:-5], best.note.removeprefix("worst: ").partition("; ")[0][:-5]}

    rewrite(run, "judge", lambda _, rows: [row | {"judge_id": "encoder-1:kind:model"} for row in rows])
    encoder = {"../dense one": {"kind": "sentence_transformers", "model": "owner/model"}}
    settings = Settings.model_validate({"encoders": encoder, "pool": {"retrievers": ["bm25", "../dense one"]}})
    only = facts(run, settings)["Only retriever"]
    assert only.value.startswith("bm25 ")
    assert only.note == "Recall@10; ../dense one not ranked: the labels favour it"


def test_an_incomplete_run_has_the_facts_of_its_complete_stages(run: Run) -> None:
    finished_run(run.store.url)
    for stage in ("label", "triplets", "audit"):
        run.store.delete(f"manifests/{stage}.json")
    assert list(facts(run)) == ["Queries"]
    assert facts(run)["Queries"].note == "no labels yet"


def test_a_mined_run_does_not_know_its_precision_until_a_judge_checks_pairs(run: Run) -> None:
    mine(run, random_log(7))
    found = facts(run)
    assert list(found)[:3] == ["Queries in the log", "Positives", "Triplets"]
    assert found["Precision of the labels"].value == NOT_MEASURED
    assert found["Precision of the labels"].command.startswith("darklode mine ")
    assert found["Recall of the labels"].value == NOT_MEASURED
    assert int(found["Triplets"].value) > 0


def test_systems_with_the_model_of_the_ranker_are_not_ranked_among_a_logs_systems(run: Run) -> None:
    mine(run, random_log(7))
    row = {"tenant": None, "part": "counted", "measure": "nDCG@10", "ceiling": 1.0, "queries": 1}
    rows = [row | {"system": name, "value": value} for name, value in (("minilm", 1.0), ("bm25", 0.5), ("terms", 0.4))]
    put(run, "evaluation", pa.Table.from_pylist(rows, TABLES["evaluation"].schema))
    pair = {"tenant": "t", "query_id": "q", "query": "a", "doc_id": "d", "kind": "unseen", "shares_positive": False}
    pair |= {"source": "relevance_one_hop", "date": date(2026, 3, 2)}
    put(run, "mined_test", pa.Table.from_pylist([pair], TABLES["mined_test"].schema))
    encoders = {"minilm": {"kind": "sentence_transformers", "model": "owner/model"}}
    settings = {"encoders": encoders, "judge": {"kind": "encoder", "encoder": "minilm"}}

    def best(ranker: str) -> tuple[str, str]:
        fact = facts(run, Settings.model_validate(settings | {"relevance": {"ranker": ranker}}))["Best system"]
        return fact.value, fact.note

    assert best("judge") == ("bm25 0.50", "worst: terms 0.40; nDCG@10; minilm not ranked: the labels favour it")
    assert best("none") == ("minilm 1.00", "worst: terms 0.40; nDCG@10")


def test_other_folders_have_none(run: Run) -> None:
    assert facts(adapted_tables(run)) == {}
