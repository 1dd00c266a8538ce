"""Triplets on the page: the doubtful ones by brute force, the random ones by their seed."""

import hashlib

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.sections import triplets as doubts
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES
from helpers.finished_run import finished_run
from helpers.report_runs import THRESHOLD, figure, key_of, parsed, rendered, shown, text_of
from helpers.runs import put, read
from helpers.small_log import mine, random_log


@pytest.mark.parametrize("initial_limit", [1, doubts.INITIAL_LIMIT])
def test_the_most_doubtful_triplets_are_those_of_the_smallest_margins(
    chance_run: Run, initial_limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By brute force: every text of every triplet with the distance of its probability from the threshold."""
    monkeypatch.setattr(doubts, "INITIAL_LIMIT", initial_limit)
    said = {(*key_of(row), row["chunk_id"]): row for row in read(chance_run, "verdicts")}
    margins = {}
    for triplet in read(chance_run, "triplets"):
        for chunk in [triplet["positive_id"], *triplet["negative_ids"]]:  # type: ignore[misc]
            verdict = said[*key_of(triplet), chunk]
            margins[*key_of(triplet), chunk] = abs(verdict["probability"] - THRESHOLD)  # type: ignore[operator]
    nearest = sorted(margins, key=lambda pair: (margins[pair], pair))[:10]
    settings = Settings(judge=JudgeSettings(threshold=THRESHOLD))
    rows = shown(chance_run, settings)["doubtful-triplets"].table.to_pylist()
    assert [(row["tenant"], row["query_id"], row["chunk_id"]) for row in rows] == nearest
    for row in rows:
        assert (row["doubtful"] == "positive") == (row["probability"] >= THRESHOLD)
        assert (row["negative"] is None) == (row["doubtful"] == "positive")
        assert row["negative" if row["negative"] else "positive"] == f"text of {row['chunk_id']}"


def test_a_label_on_the_wrong_side_of_the_threshold_is_the_most_doubtful(chance_run: Run) -> None:
    """A higher threshold than that of the labels: the positives below it contradict it most where they lie lowest."""
    positives = {(*key_of(row), row["positive_id"]) for row in read(chance_run, "triplets")}
    said = {(*key_of(row), row["chunk_id"]): row["probability"] for row in read(chance_run, "verdicts")}
    lowest = sorted(positives, key=lambda pair: said[pair])[:10]  # type: ignore[arg-type,return-value]
    settings = Settings(judge=JudgeSettings(threshold=0.99))
    rows = shown(chance_run, settings)["doubtful-triplets"].table.to_pylist()
    assert [(row["tenant"], row["query_id"], row["chunk_id"]) for row in rows] == lowest


def test_the_random_triplets_hang_on_the_seed(chance_run: Run) -> None:
    triplets = read(chance_run, "triplets")

    def place(row: dict[str, object], seed: int) -> str:
        return hashlib.md5("\0".join([str(seed), str(row["tenant"]), str(row["triplet_id"])]).encode()).hexdigest()

    drawn = []
    for seed in (13, 14):
        expected = sorted(triplets, key=lambda row, seed=seed: place(row, seed))[:10]  # type: ignore[misc]
        rows = shown(chance_run, Settings(seed=seed))["random-triplets"].table.to_pylist()
        drawn.append([(*key_of(row), row["positive_id"]) for row in rows])
        assert drawn[-1] == [(*key_of(row), row["positive_id"]) for row in expected]
    assert drawn[0] != drawn[1]


@pytest.mark.slow
def test_mined_positives_that_the_judge_doubts_come_lowest_first(run: Run) -> None:
    mine(run, random_log(7))
    pairs = read(run, "mined_pairs")[:15]
    verdicts = [
        {name: row[name] for name in ("tenant", "query_id", "positive_id", "source")}
        | {"relevant": place % 2 == 0, "probability": (place * 7 % 15) / 15, "judge_id": "embedded-1"}
        for place, row in enumerate(pairs)
    ]
    put(run, "mined_verdicts", pa.Table.from_pylist(verdicts, TABLES["mined_verdicts"].schema))
    rows = shown(run)["doubtful-mined-triplets"].table.to_pylist()
    lowest = sorted(verdicts, key=lambda row: row["probability"])[:10]  # type: ignore[arg-type,return-value]
    assert [(*key_of(row), row["chunk_id"]) for row in rows] == [(*key_of(row), row["positive_id"]) for row in lowest]


def test_a_closed_card_says_where_its_texts_are_from_and_how_sure_the_judge_was(run: Run) -> None:
    root = parsed(rendered(finished_run(run.store.url)))
    cards = [text_of(card) for card in figure(root, "random-triplets").iter("li")]
    (card,) = [one for one in cards if one.startswith("reset the key acme") and "a list" in one]
    assert "positive probability 0.700Guide › Keys › Reset guide/My page.md" in card
    assert "negative probability 0.700Guide ../x y" in card
    lines = [text_of(one) for one in figure(root, "random-triplets").iter("div") if one.get("dir")]
    assert "a list tab" in lines, "an item of a list is a line of its own"


@pytest.mark.slow
def test_a_mined_triplet_names_its_documents(run: Run) -> None:
    mine(run, random_log(7))
    named = {row["title"] or row["doc_id"] for row in read(run, "documents")}
    cards = figure(parsed(rendered(run)), "random-triplets")
    where = [text_of(one) for one in cards.iter("div") if one.get("class") == "where"]
    assert len(where) >= 10
    assert all(any(str(name) in one for name in named) for one in where)
