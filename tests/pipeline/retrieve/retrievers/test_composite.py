"""Retrievers made of others: what identifies them, and who is searched how often."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

from darklode.flows.factories import identities, retriever, retrievers
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.retrieve.retrievers.bm25 import Bm25
from darklode.pipeline.retrieve.retrievers.composite import CompositeBuilder, with_members
from darklode.pipeline.retrieve.retrievers.port import Hits
from helpers.composites import composite_run, composite_settings, rankings
from helpers.evaluated import build_of, ranked

MIX = "{kind: hybrid, of: [bm25, ppmi]}"


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The depths of the searches of BM25."""
    depths: list[int] = []
    search = Bm25.search

    def counting(self: Bm25, queries: Sequence[str], depth: int) -> Hits:
        depths.append(depth)
        return search(self, queries, depth)

    monkeypatch.setattr(Bm25, "search", counting)
    return depths


def test_it_is_identified_by_its_settings_and_members_whatever_their_names(tmp_path: Path) -> None:
    kinds = {
        "mix": MIX,
        "same": "{kind: hybrid, of: [terms, ppmi]}",
        "terms": "{kind: bm25}",
        "long": "{kind: bm25, b: 1}",
    }
    kinds |= {"other": "{kind: hybrid, of: [long, ppmi]}", "deep": "{kind: hybrid, of: [bm25, ppmi], depth: 9}"}
    named = identities(retrievers(composite_settings(tmp_path, "mix", "same", "other", "deep", **kinds)))
    assert named["mix"] == named["same"]
    assert named["mix"] != named["other"]
    assert named["mix"] != named["deep"]


def test_it_is_plain_data_with_its_members_inside(tmp_path: Path) -> None:
    settings = composite_settings(tmp_path, "outer", mix=MIX, outer="{kind: hybrid, of: [mix, character]}")
    built = retrievers(settings)["outer"]
    assert isinstance(built, CompositeBuilder)
    assert [name for name, _ in with_members([("outer", built)])] == ["outer", "mix", "bm25", "ppmi", "character"]
    assert pickle.loads(pickle.dumps(built)) == built
    assert built.shares == "outer"


def test_members_of_the_pool_are_searched_once(tmp_path: Path, searches: list[int]) -> None:
    run = composite_run(tmp_path / "run")
    names = ("bm25", "ppmi", "mix", "outer")
    settings = composite_settings(tmp_path, *names, mix=MIX, outer="{kind: hybrid, of: [mix, bm25]}")
    found = rankings(run, settings)
    assert searches == [420, 420], "once for each tenant"
    run = composite_run(tmp_path / "other")
    alone = rankings(run, composite_settings(tmp_path, "mix", mix=MIX))
    assert alone["mix"] == found["mix"]


def test_members_of_evaluated_systems_are_searched_once(tmp_path: Path, searches: list[int]) -> None:
    run, settings = build_of(tmp_path / "run"), composite_settings(tmp_path, "bm25", "ppmi", "mix", mix=MIX)
    ranked(run, retrievers(settings), depth=3)
    assert searches == [420, 420]


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({"mix": "{kind: hybrid, of: [bm25, mix]}"}, r"retrievers\.mix\.of: .*cannot be made of itself \(mix → mix\)"),
        (
            {"mix": "{kind: hybrid, of: [bm25, two]}", "two": "{kind: hybrid, of: [mix, ppmi]}"},
            r"retrievers\.two\.of: .*\(mix → two → mix\)",
        ),
        (
            {"mix": "{kind: hybrid, of: [bm25, ppmj]}"},
            r"retrievers\.mix\.of: unknown retriever ppmj; did you mean ppmi",
        ),
    ],
)
def test_cycles_and_unknown_names_are_errors(tmp_path: Path, kinds: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        retrievers(composite_settings(tmp_path, "mix", **kinds))


def test_a_kind_without_a_name_of_its_own_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"--set 'retrievers.NAME=\{kind: hybrid, of: …\}'"):
        retriever("hybrid", "pool.retrievers", composite_settings(tmp_path, "bm25"))
