"""Templates: a query is data, whatever it says."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from darklode.pipeline.retrieve.retrievers.json_template import fill, placeholders, value_at

TEMPLATE = {
    "query": {"bool": {"must": [{"match": {"body": "{query}"}}], "filter": {"term": {"tenant": "t-{tenant}"}}}},
    "size": "{k}",
    "ext": {"{query}": "the key stays", "n": 3, "flag": True, "none": None},
}


def test_placeholders_are_replaced_in_strings_alone() -> None:
    assert placeholders(TEMPLATE) == {"query", "k", "tenant"}
    assert fill(TEMPLATE, {"query": "red shoes", "k": 60, "tenant": "acme"}) == {
        "query": {
            "bool": {"must": [{"match": {"body": "red shoes"}}], "filter": {"term": {"tenant": "t-acme"}}},
        },
        "size": 60,
        "ext": {"{query}": "the key stays", "n": 3, "flag": True, "none": None},
    }
    assert fill("top {k} for {query}, {other}", {"query": "{k}", "k": 5, "tenant": ""}) == "top 5 for {k}, {other}"


@given(st.text())
def test_no_query_changes_the_structure_of_a_request(query: str) -> None:
    filled = json.loads(json.dumps(fill(TEMPLATE, {"query": query, "k": 1, "tenant": "a"})))
    assert filled["query"]["bool"]["must"] == [{"match": {"body": query}}]
    assert filled.keys() == TEMPLATE.keys()


HIT = {"_id": 7, "_source": {"meta.id": "m", "meta": {"key": "k"}}, "list": [{"id": "first"}, {"id": "second"}]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("_id", 7),
        ("_source.meta.id", "m"),
        ("_source.meta.key", "k"),
        ("list.1.id", "second"),
        ("list.2.id", None),
        ("list.id", None),
        ("nowhere.id", None),
        ("_id.more", None),
        ("", HIT),
    ],
)
def test_a_path_leads_to_a_value_or_to_none(path: str, value: object) -> None:
    assert value_at(HIT, path) == value
