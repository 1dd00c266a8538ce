"""Sides of the log's queries: near-duplicates together, nobody moved by a later night, and what is torn on neither."""

import itertools
import random
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Manifest, Output, Run, Stage, Tables
from darklode.pipeline.base.near_duplicates import near_keys
from darklode.pipeline.base.relations import Relation
from darklode.pipeline.mine import splits
from darklode.pipeline.mine.splits import MINED_SPLITS, find_roots, mined_splits
from darklode.schemas.tables import TABLES
from helpers.runs import execute, read

FIRST = date(2026, 3, 1)
Asked = dict[date, list[str]]


def split(run: Run, asked: Asked, *, test_from: date | None = None, share: float = 0.5) -> Manifest:
    """A night: the log's queries so far, whose ids are their texts, and their sides."""

    def log(_tables: Tables, output: Output) -> None:
        seen: set[str] = set()
        for day, texts in sorted(asked.items()):
            new = sorted(set(texts) - seen)
            seen |= set(new)
            rows = {
                "tenant": ["t"] * len(new),
                "date": [day] * len(new),
                "query_id": new,
                "text": new,
                "normal_form": new,
            }
            output.write("log_queries", TABLES["log_queries"].rows(rows))

    execute(run, Stage("given_log_queries", 1, (), ("log_queries",)), log)
    return execute(
        run,
        MINED_SPLITS,
        lambda tables, output: mined_splits(tables, output, validation_share=share, test_from=test_from, seed=13),
    )


def sides(run: Run) -> dict[object, dict[str, object]]:
    return {row["query_id"]: row for row in read(run, "query_clusters")}


def slip(text: str, chance: random.Random) -> str:
    place = chance.randrange(len(text) - 1)
    return text[:place] + text[place + 1 :] if chance.random() < 0.5 else text[:place] + "q" + text[place + 1 :]


def slippery(number: int, days: int = 5) -> Asked:
    """Days of queries, each a few slips away from one of few: clusters that merge."""
    chance = random.Random(number)
    words = ["export tickets", "reset password", "rotate api keys", "refund invoice"]
    asked: Asked = {}
    for day in range(days):
        texts = []
        for _ in range(12):
            text = chance.choice(words)
            for _ in range(chance.randrange(4)):
                text = slip(text, chance)
            texts.append(text)
        asked[FIRST + timedelta(day)] = texts
    return asked


def letters(text: object) -> str:
    return str(text).replace(" ", "")


def one_slip(one: str, other: str) -> bool:
    """Whether both give the same when at most one letter of each is left out, read off the definition."""
    left = [{text, *(text[:i] + text[i + 1 :] for i in range(len(text)))} for text in (one, other)]
    return bool(left[0] & left[1])


@pytest.mark.parametrize("number", range(4))
def test_no_two_near_duplicates_are_on_different_sides(run: Run, number: int) -> None:
    split(run, slippery(number))
    rows = sides(run)
    assert {row["split"] for row in rows.values()} >= {"train", "validation"}
    near = [(a, b) for a, b in itertools.combinations(rows, 2) if one_slip(letters(a), letters(b))]
    assert len(near) > 20
    for a, b in near:
        assert len({rows[a]["split"], rows[b]["split"]} - {None}) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_nights_in_any_order_end_like_one_run(tmp_path: Path, number: int) -> None:
    asked = slippery(number)
    once, nightly = Run(str(tmp_path / "once")), Run(str(tmp_path / "nightly"))
    split(once, asked)
    order = list(asked)
    random.Random(number).shuffle(order)
    for seen in range(1, len(order) + 1):
        split(nightly, {day: asked[day] for day in order[:seen]})
    assert nightly.manifest(MINED_SPLITS).outputs == once.manifest(MINED_SPLITS).outputs  # type: ignore[union-attr]


def test_a_later_night_moves_nobody(run: Run) -> None:
    asked = slippery(7)
    before: dict[object, dict[str, object]] = {}
    for day in range(1, len(asked) + 1):
        split(run, dict(list(asked.items())[:day]))
        now = sides(run)
        assert {query: now[query] for query in before} == before
        before = now


def test_a_query_joins_the_first_it_is_near_to_and_its_chain(run: Run) -> None:
    days = [["reset password"], ["reset pasword"], ["rset pasword", "export"]]
    split(run, {FIRST + timedelta(number): texts for number, texts in enumerate(days)})
    rows = sides(run)
    assert [rows[name]["near_query_id"] for name in ("reset password", "reset pasword", "rset pasword", "export")] == [
        None,
        "reset password",
        "reset pasword",
        None,
    ]
    chain = [rows[name] for name in ("reset password", "reset pasword", "rset pasword")]
    assert {row["cluster_id"] for row in chain} == {"reset password"}
    assert len({row["split"] for row in chain}) == 1


def test_a_query_between_two_sides_is_on_neither(run: Run) -> None:
    names = [4 * letter for letter in "abcdefghijklmnopqrstuvwy"]
    ends = [f"{name}{end}" for name in names for end in ("export", "expr")]
    between = [f"{name}exprt" for name in names]
    split(run, {FIRST: ends, FIRST + timedelta(1): between})
    rows = sides(run)
    for name in names:
        two, one = {rows[f"{name}{end}"]["split"] for end in ("export", "expr")}, rows[f"{name}exprt"]["split"]
        assert one == (None if len(two) > 1 else two.pop())
    assert {rows[text]["split"] for text in between} == {None, "train", "validation"}


def test_the_test_period_is_a_side_of_its_own(run: Run) -> None:
    later = FIRST + timedelta(1)
    split(run, {FIRST: ["reset password"], later: ["reset pasword", "export"]}, test_from=later, share=1.0)
    assert {query: row["split"] for query, row in sides(run).items()} == {
        "reset password": "validation",
        "reset pasword": "test",
        "export": "test",
    }


def test_shares_are_met_and_every_query_is_there(run: Run) -> None:
    texts = [f"intent{number} word{number * 7}" for number in range(3000)]
    manifest = split(run, {FIRST: texts}, share=0.1)
    counted = Counter(row["split"] for row in read(run, "query_clusters"))
    assert counted["validation"] / 3000 == pytest.approx(0.1, abs=0.02)
    assert counted["train"] + counted["validation"] == 3000
    assert (manifest.funnel[0].rows_in, manifest.funnel[0].rows_out) == (3000, 3000)


def test_no_queries_no_sides(run: Run) -> None:
    split(run, {})
    assert read(run, "query_clusters") == []


def test_chains_end_where_they_began() -> None:
    assert find_roots(np.array([0, 0, 1, 2, 4, 3])).tolist() == [0, 0, 0, 0, 4, 0]


def test_a_night_makes_no_key_of_earlier_queries(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = slippery(3)
    split(run, dict(list(asked.items())[:-1]))
    made: list[int] = []

    def counted(connection: duckdb.DuckDBPyConnection, queries: Relation) -> Relation:
        made.extend(connection.sql(f"SELECT count(*) FROM {queries}").fetchall()[0])
        return near_keys(connection, queries)

    monkeypatch.setattr(splits, "near_keys", counted)
    split(run, asked)
    last = max(asked)
    assert made == [sum(row["date"] == last for row in read(run, "query_clusters"))]
    places = {row["place"] for row in read(run, "query_keys") if row["date"] == last}
    assert places == set(range(made[0]))
