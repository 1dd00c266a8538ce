"""What the learned term weighter learns from documents and clicks, and the weights it gives."""

import math
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.mine.term_weighting.log import FIT_TERM_WEIGHTS, SHRINKAGE, LogTermWeighter, fit_term_weights
from darklode.pipeline.mine.term_weighting.port import Tokenizer
from darklode.schemas.tables import TABLES
from helpers.runs import documents, execute, put, read

FIRST, SECOND = date(2026, 3, 1), date(2026, 3, 2)


def evidence(*rows: tuple[date, str, str, int]) -> pa.Table:
    days, queries, docs, clicks = zip(*rows, strict=True) if rows else ((), (), (), ())
    ones = [1] * len(rows)
    columns = {"tenant": ["default"] * len(rows), "date": days, "query_id": queries, "doc_id": docs}
    return TABLES["click_evidence"].rows(columns | {"exposures": ones, "clicks": clicks, "satisfied": clicks})


def queries(*texts: str, day: date = FIRST, tenant: str = "default") -> pa.Table:
    columns = {
        "tenant": [tenant] * len(texts),
        "query_id": list(texts),
        "text": list(texts),
        "normal_form": list(texts),
        "date": [day] * len(texts),
    }
    return TABLES["log_queries"].rows(columns)


def fitted(run: Run, docs: pa.Table, log: pa.Table, clicks: pa.Table, through: date | None = SECOND) -> Manifest:
    for name, rows in (("documents", docs), ("log_queries", log), ("click_evidence", clicks)):
        put(run, name, rows)
    source = run.tables("documents", "log_queries", "click_evidence")
    return execute(run, FIT_TERM_WEIGHTS, lambda _tables, output: fit_term_weights(source, output, through=through))


def learned(run: Run) -> dict[tuple[str, str], Any]:
    return {(row["tenant"], row["term"]): row for row in read(run, "learned_term_weights")}


def texts(*texts: str) -> pa.Table:
    return documents(doc_id=[f"d{n}" for n in range(len(texts))], text=list(texts))


def test_a_rare_term_weighs_more(run: Run) -> None:
    fitted(run, texts("apple pear", "apple", "apple plum"), queries("fig"), evidence())
    rows = learned(run)
    assert rows["default", "plum"]["weight"] == pytest.approx(math.log(4 / 1.5) / math.log(8), abs=1e-6)
    assert rows["default", "appl"]["weight"] == pytest.approx(math.log(4 / 3.5) / math.log(8), abs=1e-6)
    assert rows["default", "fig"]["weight"] == pytest.approx(math.log(2 / 1.5) / math.log(4), abs=1e-6)
    assert (rows["default", "fig"]["documents"], rows["default", "fig"]["queries"]) == (0, 1)
    assert list(rows) == sorted(rows)


def test_what_users_click_for_weighs_more_and_what_they_skip_less(run: Run) -> None:
    docs = texts("red paint", "red paint", "red car", "blue car", "blue paint", "green")
    log = queries("red paint")
    clicks = evidence(*[(FIRST, "red paint", f"d{n}", int(n in (0, 1, 4))) for n in range(5)])
    fitted(run, docs, log, clicks)
    rows = learned(run)
    # paint: all 3 clicked documents hold it, none of the 2 skipped ones; red: 2 of 3, and 1 of 2.
    prior = SHRINKAGE * 3.5 / 6
    lift = ((3 + prior) / (3 + SHRINKAGE)) / ((0 + prior) / (2 + SHRINKAGE))
    assert rows["default", "paint"]["lift"] == pytest.approx(lift, abs=1e-6)
    assert rows["default", "paint"]["lift"] > rows["default", "red"]["lift"] > 1
    assert rows["default", "paint"]["weight"] > rows["default", "red"]["weight"]
    assert rows["default", "blue"]["lift"] is None


def test_a_clicked_pair_is_never_a_skipped_one(run: Run) -> None:
    shown = [(FIRST, "red", "d0", 0), (SECOND, "red", "d0", 1), (FIRST, "red", "d1", 0)]
    fitted(run, texts("red", "blue"), queries("red"), evidence(*shown))
    both = learned(run)["default", "red"]["lift"]
    assert both > 1


def test_later_days_do_not_count(run: Run) -> None:
    log = pa.concat_tables([queries("red"), queries("late", day=SECOND)])
    shown = [(SECOND, "red", "d0", 1), (FIRST, "red", "d1", 0)]
    fitted(run, texts("red", "blue"), log, evidence(*shown), through=FIRST)
    assert ("default", "late") not in learned(run)
    assert learned(run)["default", "red"]["lift"] is None


def test_the_documents_alone(run: Run) -> None:
    fitted(run, texts("red", "blue"), queries("red", "green"), evidence((FIRST, "red", "d0", 1)), through=None)
    assert {term for _, term in learned(run)} == {"red", "blue"}


def test_words_that_stand_together_are_one_term(run: Run) -> None:
    docs = texts(*["two factor codes", "factor one", "use two factor", *[f"filler{n} words" for n in range(20)]])
    log = queries("reset two factor", "two factor lost", "two factor app")
    fitted(run, docs, log, evidence())
    assert learned(run)["default", "two factor"]["documents"] == 2
    weighter = LogTermWeighter(run.tables("learned_term_weights").read("learned_term_weights"), "v")
    assert weighter.weights("default", "two factor lost").keys() == {"two factor", "lost"}
    assert weighter.weights("default", "factor two") == {"factor": pytest.approx(1.0, abs=0.3), "two": 1.0}


def test_scripts_without_spaces_have_words(run: Run) -> None:
    fitted(run, texts(*["料金を"] * 4, "invoice"), queries("パスワードを教えてください"), evidence())
    assert {"料金", "を", "パスワード", "教え", "invoic"} <= {term for _, term in learned(run)}


def plans(run: Run, docs: pa.Table, *asked: str) -> dict[str, list[str]]:
    """Each query's terms by a weighter that learned from all of them, most important first."""
    fitted(run, docs, queries(*asked), evidence())
    weighter = LogTermWeighter(run.tables("learned_term_weights").read("learned_term_weights"), "v")
    found = {text: weighter.weights("default", text) for text in asked}
    return {text: sorted(terms, key=lambda term: -terms[term]) for text, terms in found.items()}


def test_politeness_does_not_lead(run: Run) -> None:
    things = ["webhooks", "reset password", "invoices", "api key", "export", "saml", "trial", "members"]
    asked = [f"plz {thing} wont work" for thing in things]
    found = plans(run, texts(*[f"all about {thing}" for thing in things]), *asked)
    for thing, terms in zip(things, found.values(), strict=True):
        own = Tokenizer().tokenize(thing)
        assert set(terms[: len(own)]) == set(own)


def test_a_word_of_many_queries_is_weak_in_any_language(run: Run) -> None:
    german = ["ein passwort ändern", "ein konto löschen", "ein mitglied einladen", "ein plan kündigen"]
    japanese = [f"{thing}を教えてください" for thing in ("料金プラン", "パスワード", "請求書")]
    found = plans(run, texts("all about plans", "passwords"), *german, *japanese)
    assert all(found[text][-1] == "ein" for text in german)
    polite = {"を", "教え", "て", "くだ", "さい"}
    assert all(found[text][0] not in polite for text in japanese)


def test_nothing_is_known_of_words_that_nobody_used() -> None:
    weights = {"tenant": ["t"], "term": ["appl"], "weight": [0.5], "documents": [1], "queries": [1]}
    weighter = LogTermWeighter(TABLES["learned_term_weights"].rows(weights), "v")
    assert weighter.weights("t", "unheard words") == {}
    assert weighter.weights("t", "unheard") == {"unheard": 1.0}
    assert weighter.weights("t", "unheard apple").keys() == {"unheard", "appl"}


def test_tenants_do_not_meet(run: Run) -> None:
    theirs = texts("pear plum").set_column(0, TABLES["documents"].schema.field("tenant"), pa.array(["other"]))
    log = pa.concat_tables([queries("apple"), queries("pear", tenant="other")])
    fitted(run, pa.concat_tables([texts("apple", "fig"), theirs]), log, evidence())
    assert set(learned(run)) == {
        (t, w) for t, w in (("default", "appl"), ("default", "fig"), ("other", "pear"), ("other", "plum"))
    }


def test_the_order_of_the_rows_does_not_matter(run: Run) -> None:
    docs = texts(*[f"word{n % 7} other{n % 3} word{n % 5}" for n in range(40)])
    log = queries(*[f"word{n} other{n % 3}" for n in range(7)])
    clicks = evidence(
        *[(FIRST, f"word{q} other{q % 3}", f"d{d}", int(q == d % 7)) for q in range(7) for d in range(40)]
    )
    parts = []
    for order in (range, lambda n: range(n - 1, -1, -1)):
        rows = [table.take(list(order(table.num_rows))) for table in (docs, log, clicks)]
        parts.append([part.sha256 for part in fitted(run, *rows).outputs["learned_term_weights"]])
    assert parts[0] == parts[1]


def test_no_documents_and_no_log(run: Run) -> None:
    assert fitted(run, texts(), queries(), evidence()).rows("learned_term_weights") == 0


def test_the_best_term_has_importance_1() -> None:
    weights = {"tenant": ["t"] * 3, "term": ["appl", "pear", "plum"], "weight": [0.2, 0.4, 0.0]}
    weights |= {"documents": [1] * 3, "queries": [1] * 3}
    weighter = LogTermWeighter(TABLES["learned_term_weights"].rows(weights), "v")
    assert weighter.weights("t", "apples and a pear") == {"appl": pytest.approx(0.5), "pear": 1.0}
    assert weighter.weights("t", "apple unheard") == {"appl": pytest.approx(0.2), "unheard": 1.0}
    assert weighter.weights("t", "plum") == weighter.weights("t", "the") == {}
    assert weighter.weights("u", "apple") == {"appl": 1.0}
