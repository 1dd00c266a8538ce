"""Names of encoders: what may change a vector changes the name."""

from __future__ import annotations

import pytest

from darklode.pipeline.retrieve.encoders.port import identity, short_hash


def test_an_identity_names_kind_model_and_facts_in_order() -> None:
    assert (
        identity("kind", "owner/model@1", tokens="all", dtype="float32")
        == "kind:owner/model@1:tokens=all:dtype=float32"
    )


def test_equal_values_have_one_hash_and_nothing_has_none() -> None:
    assert short_hash("query: ", {"a": 1, "b": 2}) == short_hash("query: ", {"b": 2, "a": 1})
    assert short_hash("", {}, None) == "none"


@pytest.mark.parametrize("other", [("passage: ", ""), ("", "query: "), ("query: ", " ")])
def test_another_value_or_place_has_another_hash(other: tuple[str, str]) -> None:
    assert short_hash("query: ", "") != short_hash(*other)
