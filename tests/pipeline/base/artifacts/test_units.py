"""Records of units name their parts whole, manifests by their places."""

from darklode.pipeline.base.artifacts import Part, Unit
from darklode.pipeline.base.artifacts.units import dump_unit_record, parse_unit_record, unit_of

PARTS = [Part(f"tables/t/s-{number:05d}-0.parquet", number, 9, "ab", "2026-03-01") for number in range(4)]


def test_a_record_has_what_the_unit_had() -> None:
    record = parse_unit_record(dump_unit_record(Unit(done=False, parts={"t": PARTS[1:3]}, facts={"rows": 3})))
    assert record is not None
    assert unit_of(record, {}) == Unit(done=True, parts={"t": PARTS[1:3]}, facts={"rows": 3})


def test_a_manifest_names_places_in_its_outputs() -> None:
    assert unit_of({"parts": {"t": [1, 3]}, "facts": {}}, {"t": PARTS}).parts == {"t": PARTS[1:3]}


def test_damaged_records_are_none() -> None:
    data = dump_unit_record(Unit(done=False))
    assert parse_unit_record(data) is not None
    assert parse_unit_record(data.replace(b"facts", b"fact5")) is None
    assert parse_unit_record(b"{}") is None
