"""The names of settings: which there are, what a wrong one means, and how values merge."""

from typing import Any

import pytest

from darklode.schemas.setting_names import (
    REMOVED,
    RENAMED,
    RENAMED_SECTIONS,
    iterate_leaves,
    keys,
    kinds,
    known_keys,
    merge,
    unknown_keys,
    without_former_keys,
)
from darklode.schemas.settings import Settings

LLM = {"kind": "llm", "model": "m", "base_url": "http://h/v1"}


def test_known_keys_are_all_leaves_and_no_sections() -> None:
    known = known_keys()
    assert {"seed", "pool.depth", "ingest.queries.columns.text", "encoders.NAME.model", "judge.prompt"} <= set(known)
    assert not set(known) & {"clean", "ingest.documents", "ingest.queries.columns", "judge", "encoders"}
    assert len(known) == len(set(known)) > len(Settings.model_fields)


def test_a_kinds_own_keys_name_it_and_those_of_all_kinds_name_none() -> None:
    found = {(key.path, key.kind) for key in keys()}
    assert {("judge.threshold", ""), ("judge.prompt", "llm"), ("judge.batch_size", "cross_encoder")} <= found
    assert ("judge.threshold", "llm") not in found
    assert ("term_weighting.table", "table") in found


def test_the_sections_that_are_of_a_kind() -> None:
    assert [path for path, _ in kinds()] == [
        "encoders.NAME",
        "retrievers.NAME",
        "judge",
        "index",
        "generate",
        "term_weighting",
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pol": {}}, "pol: there is no such section; a section's keys stand below it, without dots"),
        ({"pol": {"depth": 3}}, "there is no setting pol.depth; did you mean pool.depth?"),
        ({"pool": 3}, "pool is a section; set pool.<key> or leave it out"),
        ({"pool.depth": 3}, "pool.depth: there is no such section"),
        ({"seed": {"x": 1}}, "there is no setting seed.x"),
        ({"judge": {"kind": "llm", "device": "cpu"}}, "judge.device is a setting of kind cross_encoder"),
        ({"judge": {"kind": 3}}, "judge.kind: kind must be one of"),
        ({"encoders": {"e": 3}}, "encoders.e is a section"),
        ({"judge": {"panel": [3]}}, "judge.panel.0 is a section"),
        ({"judge": {"panel": [LLM, {"kind": "embedded", "zzz": 1}]}}, "there is no setting judge.panel.1.zzz; known"),
    ],
)
def test_a_name_that_is_none_is_told_what_was_meant(values: dict[str, Any], message: str) -> None:
    (unknown,) = unknown_keys(values)
    assert message in unknown.message


def test_names_are_checked_and_not_values() -> None:
    values = {"pool": {"depth": "many"}, "judge": {"panel": 3}, "encoders": {"e": {"kind": "openai", "model": None}}}
    assert list(unknown_keys(values)) == []


def test_sections_merge_and_values_replace() -> None:
    base = {"pool": {"depth": 60, "retrievers": ["bm25", "ppmi"]}, "seed": 1}
    over = {"pool": {"retrievers": ["lsa"]}, "clean": {"noise": False}}
    assert merge(base, over) == {
        "pool": {"depth": 60, "retrievers": ["lsa"]},
        "seed": 1,
        "clean": {"noise": False},
    }
    assert base["pool"] == {"depth": 60, "retrievers": ["bm25", "ppmi"]}, "what was given stays as it was"


def test_another_kind_takes_only_the_keys_of_all_kinds_along() -> None:
    base = {"judge": LLM | {"threshold": 0.3, "extra_body": {"temperature": 0, "seed": 1}}}
    assert merge(base, {"judge": {"kind": "embedded"}}) == {"judge": {"kind": "embedded", "threshold": 0.3}}
    same = merge(base, {"judge": {"extra_body": {"seed": 2}}})["judge"]
    assert same == base["judge"] | {"extra_body": {"temperature": 0, "seed": 2}}


def test_named_sections_merge_name_by_name() -> None:
    base = {
        "encoders": {"a": {"kind": "openai", "model": "m", "max_concurrency": 2}, "b": {"kind": "openai", "model": "n"}}
    }
    over = {"encoders": {"a": {"model": "o"}, "b": {"kind": "sentence_transformers"}, "c": {"kind": "openai"}}}
    assert merge(base, over)["encoders"] == {
        "a": {"kind": "openai", "model": "o", "max_concurrency": 2},
        "b": {"kind": "sentence_transformers", "model": "n"},
        "c": {"kind": "openai"},
    }


def test_keys_of_other_kinds_that_an_earlier_version_recorded_are_dropped() -> None:
    recorded = {"judge": LLM | {"device": "auto", "panel": [{"kind": "embedded", "model": "m"}]}, "seed": 5}
    assert without_former_keys(recorded) == {"judge": LLM | {"panel": [{"kind": "embedded"}]}, "seed": 5}
    unknown = without_former_keys({"term_weighting": {"kind": "log", "tabel": "x"}})
    assert unknown == {"term_weighting": {"kind": "log", "tabel": "x"}}, "a name that no kind has is not passed over"


def test_keys_that_no_kind_has_any_more_are_dropped_from_what_was_recorded() -> None:
    former = LLM | {"max_disagreement": 0.9}
    recorded = {"judge": former | {"panel": [former, {"kind": "embedded"}]}}
    assert without_former_keys(recorded) == {"judge": LLM | {"panel": [LLM, {"kind": "embedded"}]}}
    (told, of_member) = unknown_keys(recorded)
    assert told.message.startswith("judge.max_disagreement was removed: the label that the model wrote is kept")
    assert of_member.message.startswith("judge.panel.0.max_disagreement was removed: ")


def test_leaves_have_dotted_names() -> None:
    values = {"seed": 1, "pool": {"retrievers": ["bm25"], "depth": 3}, "encoders": {}}
    assert list(iterate_leaves(values)) == [("seed", 1), ("pool.retrievers", ["bm25"]), ("pool.depth", 3)]


def test_renamed_settings_exist_under_their_new_names() -> None:
    known = set(known_keys())
    assert {new.partition(" ")[0] for new in RENAMED.values()} <= known
    assert set(RENAMED_SECTIONS.values()) <= set(Settings.model_fields)
    assert not (set(REMOVED) | set(RENAMED_SECTIONS)) & (known | set(Settings.model_fields))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"adapt": {"draw": 4}}, "adapt.draw was renamed: it is now adapt.negatives_per_step"),
        ({"planner": {"refresh_days": 3}}, "planner.refresh_days was renamed: it is now term_weighting.refresh_days"),
        ({"towers": {"layers": 3}}, "towers.layers was renamed: it is now distill.student_layers"),
        ({"audit": {"bootstrap": 9}}, "audit.bootstrap was renamed: it is now evaluate.n_resamples"),
        ({"judge": LLM | {"mode": "json"}}, "judge.mode was renamed: it is now judge.response_format"),
        (
            {"encoders": {"e": {"kind": "openai", "model": "m", "in_flight": 2}}},
            "encoders.e.in_flight was renamed: it is now encoders.NAME.max_concurrency",
        ),
        ({"semantic_ids": {"iterations": 9}}, "semantic_ids.iterations was removed: k-means runs 20 iterations"),
    ],
)
def test_a_former_name_is_an_error_that_names_the_new_one(values: dict[str, Any], message: str) -> None:
    (unknown,) = unknown_keys(values)
    assert unknown.message == message
