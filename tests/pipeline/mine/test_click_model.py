"""What places are worth, learned from simulated users of whom it is known."""

from datetime import timedelta

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.mine.click_model import CLICK_MODEL_STAGE, click_model, examination, gamma_prior
from darklode.pipeline.mine.evidence import EVIDENCE, evidence
from darklode.schemas.mining import ClickSettings, LogSettings
from helpers.runs import execute, read
from helpers.small_log import FIRST, Search, impressions

LOOKED = np.array([1.0, 0.6, 0.4, 0.25])


def users(seed: int, searches: int) -> list[Search]:
    """They look at each place with a probability, and click there on what attracts them: d0 most, d7 least."""
    chance = np.random.default_rng(seed)
    found = []
    for number in range(searches):
        shown = chance.permutation(8)[:4]
        clicks = (chance.random(4) < LOOKED) & (chance.random(4) < 0.9 - shown * 0.1)
        places = frozenset(int(place) + 1 for place in np.flatnonzero(clicks))
        found.append(
            Search("default", f"s{number}", number % 1440, "one query", tuple(f"d{doc}" for doc in shown), places)
        )
    return found


@pytest.fixture
def log(run: Run) -> Run:
    def write(_tables: object, output: object) -> None:
        for day in range(3):
            output.write("impressions", impressions(FIRST + timedelta(day), users(day, 3000)))  # type: ignore[attr-defined]

    execute(run, Stage("given_log", 1, (), ("impressions",)), write)
    return run


def learn(run: Run, model: str, days: int | None) -> dict[int, float]:
    through = None if days is None else FIRST + timedelta(days - 1)
    click = ClickSettings.model_validate({"model": model})
    execute(
        run,
        CLICK_MODEL_STAGE,
        lambda _, output: click_model(run.tables("impressions"), output, click, LogSettings(), through=through),
    )
    return {int(str(row["position"])): float(str(row["click_probability"])) for row in read(run, "click_model")}


def test_the_paper_needs_no_model(log: Run) -> None:
    assert learn(log, "paper", 3) == {}


def test_shares_of_clicks_by_place(log: Run) -> None:
    found = learn(log, "coec", 3)
    searches = [search for day in range(3) for search in users(day, 3000)]
    assert found == {place: round(sum(place in s.clicked for s in searches) / 9000, 6) for place in (1, 2, 3, 4)}


@pytest.mark.parametrize("days", [1, 3])
def test_examination_is_found_again(log: Run, days: int) -> None:
    found = learn(log, "pbm", days)
    relative = np.array([found[place] for place in (1, 2, 3, 4)]) / found[1]
    assert np.abs(relative - LOOKED).max() < (0.06 if days == 1 else 0.04)


def test_days_that_are_not_settled_teach_nothing(log: Run) -> None:
    assert learn(log, "coec", None) == {}
    assert learn(log, "coec", 1) != learn(log, "coec", 2)


def test_expected_clicks_and_looks_reach_the_evidence(log: Run) -> None:
    learn(log, "coec", 3)
    model = {row["position"]: row for row in read(log, "click_model")}
    assert model[1]["examination_probability"] == 1
    execute(log, EVIDENCE, lambda t, o: evidence(t, o, ClickSettings(model="coec"), LogSettings()))
    found = {row["doc_id"]: row for row in read(log, "click_evidence") if row["date"] == FIRST}
    for doc in ("d0", "d3", "d7"):
        shown = [(search.shown.index(doc) + 1, search) for search in users(0, 3000) if doc in search.shown]
        hazards = [float(str(model[place]["hazard"])) * (0.5 if place in one.clicked else 1) for place, one in shown]
        assert found[doc]["expected"] == pytest.approx(sum(hazards))
        assert found[doc]["examinations"] == pytest.approx(
            sum(float(str(model[place]["examination_probability"])) for place, _ in shown)
        )
    assert float(str(found["d0"]["clicks"])) > 1.4 * float(str(found["d0"]["expected"]))
    assert float(str(found["d7"]["clicks"])) < 0.6 * float(str(found["d7"]["expected"]))


def test_whoever_clicked_below_a_document_has_looked_at_it(log: Run) -> None:
    learn(log, "pbm", 3)
    chosen = ClickSettings(model="pbm", negatives="skipped")
    execute(log, EVIDENCE, lambda t, o: evidence(t, o, chosen, LogSettings()))
    rows = read(log, "click_evidence")
    assert all(row["examinations"] == (row["exposures"] or None) for row in rows)


def test_the_prior_is_found_again() -> None:
    chance = np.random.default_rng(0)
    expected = chance.uniform(0.2, 8, 4000)
    clicks = chance.poisson(chance.gamma(0.6, 1 / 0.5, 4000) * expected).astype(float)
    shape, rate = gamma_prior(clicks, expected, np.ones(4000, np.int64))
    assert (shape, rate) == (pytest.approx(0.6, rel=0.1), pytest.approx(0.5, rel=0.1))


def test_documents_that_all_draw_alike_have_a_narrow_prior() -> None:
    chance = np.random.default_rng(0)
    expected = chance.uniform(0.2, 8, 4000)
    shape, rate = gamma_prior(chance.poisson(expected).astype(float), expected, np.ones(4000, np.int64))
    assert shape > 40
    assert shape / rate == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(("model", "days"), [("paper", 3), ("pbm", None)])
def test_there_is_no_prior_without_a_model(log: Run, model: str, days: int | None) -> None:
    learn(log, model, days)
    assert read(log, "click_prior") == []


def test_no_rows_have_no_examination() -> None:
    none = np.empty(0, np.int64)
    assert examination(none, none, none, none, np.empty(0)).shape == (0,)
