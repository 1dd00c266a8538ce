"""What an address may ask of a list: words, filters, orders, pages; all of it is data."""

from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.browse.catalogue import Catalogue, open_catalogue
from darklode.pipeline.browse.filtering import MAX_PAGES, MAX_WORDS, PAGE_ROWS, ListRequest, choices
from darklode.pipeline.browse.lists import PAIRS, QUERIES
from helpers.browsing import asked
from helpers.report_runs import random_run


def texts(catalogue: Catalogue, **given: str) -> list[str]:
    return [row["text"] for row in asked(catalogue, "queries", **given).rows]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("hello", ['say "hello"'] * 2),
        ("UNICODE", ["ünïcode\u2028line"] * 2),
        ("where then", ["where, then?"] * 2),
        ("%", []),
        ("_", []),
        ("hell hello goodbye", []),
        ("'; DROP TABLE pairs; --", []),
        ("{word}", []),
        ("$word_1", []),
    ],
)
def test_a_row_holds_every_part_of_a_word_whatever_case_and_accents(
    benchmark: Catalogue, words: str, found: list[str]
) -> None:
    assert texts(benchmark, q=words) == found
    assert asked(benchmark, "pairs").total == 32


def test_what_cannot_be_read_is_left_out(benchmark: Catalogue) -> None:
    for given in ({"page": "-1"}, {"page": "x"}, {"page": "9" * 400}, {"order": "by; DROP"}, {"least": "nan", "q": ""}):
        assert asked(benchmark, "pairs", **given).request == ListRequest((), {}, "by query", 1)
    assert asked(benchmark, "pairs", least="2").total == 32
    assert asked(benchmark, "pairs", outcome="' OR true --").total == 0
    many = ListRequest.from_parameters(PAIRS, {"q": "a " * 99 + "b" * 999})
    assert len(many.words) == MAX_WORDS


def test_an_address_says_what_was_asked(benchmark: Catalogue) -> None:
    given = {
        "q": "reset key",
        "outcome": "relevant",
        "min_probability": "0.25",
        "order": "highest probability",
        "page": "3",
    }
    assert ListRequest.from_parameters(PAIRS, given).parameters(PAIRS) == given
    assert ListRequest.from_parameters(PAIRS, {"order": "by query", "page": "1", "x": "y"}).parameters(PAIRS) == {}


def test_pages_hold_every_row_once_in_every_order(folder: Path) -> None:
    with open_catalogue(random_run(str(folder), 7)) as catalogue:
        total = asked(catalogue, "queries").total
        assert total > PAGE_ROWS
        for order in QUERIES.orders:
            pages = [asked(catalogue, "queries", order=order, page=str(page)) for page in (1, 2, 3)]
            last = next(page for page in pages if page.request.page == pages[0].pages)
            rows = [row["query"] for page in pages[: pages[0].pages] for row in page.rows]
            assert sorted(rows) == list(range(1, total + 1))
            assert last.first + len(last.rows) - 1 == total
        assert asked(catalogue, "queries", page=str(MAX_PAGES)).request.page == pages[0].pages


def test_there_is_nothing_to_choose_between_one_value(benchmark: Catalogue) -> None:
    shown: dict[str, Any] = {one.name: values for one, values in choices(benchmark, PAIRS)}
    assert "only_retriever" in shown
    assert shown["tenant"] == ["acme", "b/i rch"]
    assert shown["min_probability"] is None
    assert "language" not in {one.name for one, _ in choices(benchmark, QUERIES)}
