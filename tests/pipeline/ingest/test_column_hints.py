import shlex

import pytest
import yaml

from darklode.pipeline.ingest.column_hints import MAX_COLUMNS, guess_column, option, split_words
from darklode.pipeline.ingest.columns import LOG_COLUMNS, QUERY_COLUMNS


@pytest.mark.parametrize(
    ("role", "present", "meant"),
    [
        ("text", ["n", "search_term"], "search_term"),
        ("text", ["SearchTerm", "Anzahl"], "SearchTerm"),
        ("text", ["query_id", "keywords"], "keywords"),
        ("text", ["question id", "question"], "question"),
        ("text", ["a", "b"], None),
        ("text", [], None),
        ("timestamp", ["user", "created_at"], "created_at"),
        ("timestamp", ["who", "event time"], "event time"),
        ("clicked", ["is_clicked", "q"], "is_clicked"),
        ("doc_id", ["query", "product_id"], "product_id"),
        ("query", ["user", "search_term"], "search_term"),
        ("query", ["query_key", "keywords"], "keywords"),
        ("query", ["query_key"], None),
    ],
)
def test_the_likeliest_column_is_the_one_that_a_person_would_take(
    role: str, present: list[str], meant: str | None
) -> None:
    usual = QUERY_COLUMNS if role == "text" else LOG_COLUMNS
    assert guess_column(role, usual[role], present) == meant


def test_only_the_first_of_many_columns_are_looked_at() -> None:
    many = [f"n{number}" for number in range(MAX_COLUMNS)]
    assert guess_column("text", ["text"], ["query", *many]) == "query"
    assert guess_column("text", ["text"], [*many, "query"]) is None
    assert guess_column("text", ["text"], ["query" * 20]) is None


def test_names_fall_into_words() -> None:
    assert split_words("searchTerm_2 of-User") == ["search", "term", "2", "of", "user"]


@pytest.mark.parametrize(
    "name", ["term", "search term", "a: b", "1", "no", "it's", "naïve", '"q"', "a\nb", "#x", "query\t'"]
)
def test_the_option_is_read_back_as_the_name(name: str) -> None:
    flag, given = shlex.split(option("ingest.queries.columns", "text", name))
    key, _, value = given.partition("=")
    assert (flag, key) == ("--set", "ingest.queries.columns.text")
    assert yaml.safe_load(value) == name
