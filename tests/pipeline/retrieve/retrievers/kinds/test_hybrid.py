"""The kind `hybrid`: fused lists of named retrievers, tenant by tenant."""

from __future__ import annotations

from pathlib import Path

import pytest

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.retrieve.retrievers.fusion import fuse
from helpers.composites import composite_run, composite_settings, ids, opened, rankings

BOTH = ("bm25", "ppmi")


@pytest.mark.parametrize("method", ["rrf", "weighted"])
def test_it_fuses_the_lists_of_its_members(tmp_path: Path, method: str) -> None:
    run = composite_run(tmp_path / "run")
    kind = f"{{kind: hybrid, of: [bm25, ppmi], method: {method}, weights: [0.3, 0.7], depth: 5}}"
    settings = composite_settings(tmp_path, *BOTH, "mix", mix=kind)
    first, second, mix = (opened(run, settings, name, tmp_path / name) for name in (*BOTH, "mix"))
    queries = ["reset the router", "open billing", "", "unknownword"]
    expected = fuse([first.search(queries, 5), second.search(queries, 5)], (0.3, 0.7), method, 3, 7)  # type: ignore[arg-type]
    hits = mix.search(queries, 3)
    assert hits.rows.tolist() == expected.rows.tolist()
    assert hits.scores[:2].tolist() == expected.scores[:2].tolist()
    assert hits.rows[2:].max() == -1
    assert (mix.name, mix.recall, mix.unused.num_rows) == ("mix", None, 0)


def test_tenants_stay_apart_and_a_blank_query_has_no_list(tmp_path: Path) -> None:
    settings = composite_settings(tmp_path, "mix", mix="{kind: hybrid, of: [bm25, ppmi]}")
    found = rankings(composite_run(tmp_path / "run"), settings)["mix"]
    assert set(found) == {"acme/q1", "acme/q2", "zeta/q1"}
    assert {chunk_id.partition("-")[0] for chunk_id in ids(found["zeta/q1"])} == {"zeta"}
    assert ids(found["acme/q1"])[0] == "acme-1"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("{kind: hybrid, of: [bm25]}", "at least 2"),
        ("{kind: hybrid, of: [bm25, bm25]}", "names a retriever twice"),
        ("{kind: hybrid, of: [bm25, ppmi], weights: [1]}", "expected 2 weights, not all 0; got 1"),
        ("{kind: hybrid, of: [bm25, ppmi], weights: [0, 0]}", "not all 0"),
        ("{kind: hybrid, of: [bm25, ppmi], weights: [1, -1]}", "greater than or equal to 0"),
    ],
)
def test_settings_that_make_no_sense_are_errors(tmp_path: Path, kind: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        composite_settings(tmp_path, "mix", mix=kind)
