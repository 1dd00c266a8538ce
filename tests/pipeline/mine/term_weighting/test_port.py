"""The words that a weighter weighs, and the stage that asks it about new queries."""

from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.mine.term_weighting import port
from darklode.pipeline.mine.term_weighting.port import WEIGHT_TERMS, Tokenizer, weigh_terms, weight_terms
from helpers.daily_queries import give
from helpers.elsewhere import Elsewhere
from helpers.runs import execute, read


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("how do I reset the passwords?", ["reset", "password"]),
        ("error 429 after 30 days", ["error", "429", "30 day"]),
        ("upgrade from v4.0 to 4.2.1.", ["upgrad", "4.0", "4.2.1"]),
        ("PEL-1402 in e1042", ["pel", "1402", "e1042"]),
        ("料金を", ["料金", "を"]),
        ("iphone 11 case", ["iphon 11", "case"]),
        ("iphone x case", ["iphon", "x", "case"]),
        ("move from us-1 to eu 2", ["move", "us 1", "eu 2"]),
        ("12 14 inch", ["12 14 inch"]),
        ("the 2", ["2"]),
    ],
)
def test_words_that_count(text: str, terms: list[str]) -> None:
    assert Tokenizer().tokenize(text) == terms


def test_every_word_counts_where_asked() -> None:
    assert Tokenizer(every_word=True).tokenize("the 2 keys") == ["the", "2", "key"]


@dataclass
class Counting:
    """A weighter that gives every word 0.5, but `the`, and remembers what it was asked."""

    version: str = "counting"
    asked: list[str] = field(default_factory=list)

    def terms(self, queries: pa.Table) -> pa.Table:
        self.asked += queries["text"].to_pylist()
        return weigh_terms(queries, lambda _tenant, text: {word: 0.5 for word in text.split() if word != "the"})


def weigh(run: Run, weighter: Counting) -> Manifest:
    return execute(run, WEIGHT_TERMS, lambda tables, output: weight_terms(tables, output, weighter=weighter))


def test_it_writes_each_querys_terms(run: Run) -> None:
    give(run, ["reset key", "the"], ["key"])
    manifest = weigh(run, Counting())
    rows = [(row["query_id"], row["term"], row["importance"]) for row in read(run, "query_terms")]
    assert rows == [("reset key", "reset", 0.5), ("reset key", "key", 0.5), ("key", "key", 0.5)]
    assert (manifest.funnel[0].rows_in, manifest.funnel[0].dropped) == (3, {"no important term": 1})


def test_a_night_asks_about_its_own_queries(run: Run) -> None:
    give(run, ["reset key"])
    weigh(run, weighter := Counting())
    give(run, ["reset key"], ["key", "card"])
    weigh(run, weighter)
    assert weighter.asked == ["reset key", "key", "card"]
    assert len(read(run, "query_terms")) == 4


def test_another_weighter_recomputes_all(run: Run) -> None:
    give(run, ["reset key"], ["key"])
    weigh(run, Counting())
    weigh(run, other := Counting("other"))
    assert other.asked == ["reset key", "key"]


def test_days_that_are_planned_elsewhere_have_the_same_terms(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "SHARD_QUERIES", 2)
    monkeypatch.setattr(port, "QUERY_BATCH", 2)
    days = [["reset key", "the", "lost card"], ["key"], ["old card", "new card"], ["the badge", "blue badge"]]
    give(run, *days[:1])
    weigh(run, Counting())
    give(run, *days)
    elsewhere = Elsewhere(run.store, 2)
    asked = {"weighter": (weighter := Counting()), "factory": Counting, "spread": elsewhere}
    execute(run, WEIGHT_TERMS, lambda tables, output: weight_terms(tables, output, **asked))  # type: ignore[arg-type]
    there, parts = read(run, "query_terms"), [part.sha256 for part in run.tables("query_terms").parts("query_terms")]
    assert (len(elsewhere.names), weighter.asked) == (3, []), "the first day stood"
    run.store.delete("manifests/weight_terms.json")
    weigh(run, Counting())
    assert read(run, "query_terms") == there
    assert [part.sha256 for part in run.tables("query_terms").parts("query_terms")] == parts


def test_what_waits_by_another_version_of_the_stage_is_not_taken(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "SHARD_QUERIES", 1)
    give(run, ["reset key"], ["lost card"])
    waited = []
    for stage in (WEIGHT_TERMS, replace(WEIGHT_TERMS, version=WEIGHT_TERMS.version + 1)):
        asked = {"weighter": Counting(), "factory": Counting, "spread": (elsewhere := Elsewhere(run.store, 2))}
        execute(run, stage, lambda tables, output: weight_terms(tables, output, **asked))  # type: ignore[arg-type]  # noqa: B023
        waited += elsewhere.waited
    assert len(set(waited)) == len(waited) == 4
