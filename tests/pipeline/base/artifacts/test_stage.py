"""What a stage declares and records: names of parts, fingerprints, and what changed in words."""

import hashlib

import pytest

from darklode.pipeline.base.artifacts import FunnelStep, Manifest, Part, Stage, digest, key_of
from darklode.pipeline.base.artifacts.stage import (
    Plan,
    difference,
    fingerprint,
    part_file,
    partition_name,
    partition_of,
    partition_values,
    parts_of,
)

STAGE = Stage("work", 1, ("a",), ("b",))
SHA = hashlib.sha256(b"x").hexdigest()


def test_a_filter_accounts_for_every_row() -> None:
    FunnelStep("clean", "queries", 10, "queries", 7, {"short": 2, "long": 1})
    FunnelStep("chunk", "documents", 10, "chunks", 70)
    with pytest.raises(AssertionError, match="clean: 1 rows disappeared without a reason"):
        FunnelStep("clean", "queries", 10, "queries", 7, {"short": 2})
    with pytest.raises(AssertionError, match="-1 rows"):
        FunnelStep("clean", "queries", 10, "queries", 11)


def test_a_manifest_is_read_as_it_was_written_and_counts_its_rows() -> None:
    parts = {"b": [Part("f1", 3, 9, "x"), Part("f2", 4, 9, "y")], "c": []}
    step = FunnelStep("clean", "rows", 9, "rows", 7, {"noise ☃": 2})
    manifest = Manifest("work", "f", {"a": "d"}, {"size": 1}, parts, [step], 1.5, {"n": 1}, {"u": {"k": 1}})
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert [manifest.rows(table) for table in "bcd"] == [7, 0, 0]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"null", b'{"outputs": {"b": [{"file": "f"}]}, "funnel": []}'])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="invalid manifest"):
        Manifest.from_json(data)


@pytest.mark.parametrize("partition", ["", "2026-03-01", "tenant-a/date-2026-03-01"])
def test_a_parts_name_tells_its_stage_and_partition(partition: str) -> None:
    file = part_file("b", "work", 7, SHA, partition)
    assert partition_of(file) == partition
    name = file.rsplit("/", 1)[1]
    assert name == f"work-00007-{SHA[:8]}.parquet"
    assert parts_of("work").fullmatch(name)
    assert parts_of("work").fullmatch(f".{name}.123.tmp"), "what a killed write left"
    assert parts_of("work").fullmatch(f".{name}.0a1b2c3d.123.tmp"), "what a killed write of a later version left"
    assert parts_of("work").fullmatch(f".{name}.0a1b2c3d.01234567.123.unlocked.tmp"), "what a killed write leaves today"
    assert parts_of("work").fullmatch(f".{name}.0a1b2c3d.01234567.123.fedcba98.tmp"), "and one under the lock"


@pytest.mark.parametrize(
    "other", ["work-7-00000000.parquet", "work-00007-0000000g.parquet", "wor.-00007-00000000.parquet"]
)
def test_other_files_are_no_parts_of_a_stage(other: str) -> None:
    assert not parts_of("work").fullmatch(other)
    assert not parts_of("wor.").fullmatch("work-00007-00000000.parquet")


def test_folders_name_the_values_of_columns_whatever_these_are() -> None:
    for tenant in ("acme", "..", "", "a/b", "tenant=x-y", "%2F", "_x", "\0", "ü"):
        values = {"tenant": tenant, "date": "2026-03-01", "split": "train"}
        name = partition_name(values)
        assert partition_values(name) == values
        assert len(name.split("/")) == 3
        assert all(folder[0] not in "._" and "=" not in folder for folder in name.split("/"))
    assert partition_values("2026-03-01") == partition_values("") == {}


def test_a_fingerprint_hangs_on_stage_version_inputs_and_settings_and_not_on_order() -> None:
    prints = [
        fingerprint(stage, inputs, settings)
        for stage, inputs, settings in (
            (STAGE, {"a": "x"}, {"n": 1}),
            (Stage("other", 1, ("a",), ("b",)), {"a": "x"}, {"n": 1}),
            (Stage("work", 2, ("a",), ("b",)), {"a": "x"}, {"n": 1}),
            (STAGE, {"a": "y"}, {"n": 1}),
            (STAGE, {"a": "x"}, {"n": 2}),
            (STAGE, {"a": "x"}, {"n": "1"}),
        )
    ]
    assert len(set(prints)) == len(prints)
    assert fingerprint(STAGE, {"b": "2", "a": "1"}, {}) == fingerprint(STAGE, {"a": "1", "b": "2"}, {})
    assert key_of(1, "a") != key_of("1a") != key_of(1, "a", None)


def test_a_tables_content_is_that_of_its_parts_in_their_order() -> None:
    one, other = Part("a", 1, 9, "x"), Part("b", 1, 9, "y")
    assert digest([one, other]) != digest([other, one])
    assert digest([one]) == digest([Part("elsewhere", 2, 8, "x")])


def test_what_changed_is_said_with_both_values() -> None:
    before = Manifest("work", "f", {"a": "1", "b": "1"}, {"size": 500, "gone": 1, "same": [1]}, {}, [], 1.0)
    now = {"size": 300, "same": (1,), "new": None}
    assert difference(before, {"a": "2", "b": "1", "c": "1"}, now) == (
        "a changed; c changed; size: 500 → 300; gone: 1 → None"
    )
    assert difference(before, before.inputs, before.settings) == "Darklode's own code changed"


def test_bounds_only_decide_whether_a_stage_fails() -> None:
    plan = Plan(STAGE, "f", {}, {"size": 1, "share": 0.2}, None, frozenset({"share"}))
    assert (plan.is_up_to_date, plan.shaping) == (True, {"size": 1})
