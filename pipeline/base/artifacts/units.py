"""Units of a stage's work, and their records, from which a killed run continues."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from darklode.pipeline.base.artifacts.checksummed_json import dump_checksummed, load_checksummed
from darklode.pipeline.base.artifacts.stage import Part
from darklode.pipeline.base.artifacts.store import Store


@dataclass
class Unit:
    """A unit of a stage's work, such as one day; it is recorded once all its parts are on disk.

    Attributes:
        done: the unit was finished before, by a killed or by the last complete run of the stage, with the same basis.
            Then the stage must not write its parts again.
        parts: parts that the unit wrote, by table.
        facts: values that the stage recorded for the unit; restored if `done`.
    """

    done: bool
    parts: dict[str, list[Part]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """Saved state of an unfinished unit, from which it continues after a kill; deleted when the stage is complete."""

    store: Store
    name: str

    def read(self) -> bytes | None:
        """Read the last saved state; None if there is none."""
        return self.store.read(self.name)

    def write(self, data: bytes) -> None:
        """Replace the state atomically."""
        self.store.write(self.name, data)


def dump_unit_record(unit: Unit) -> bytes:
    """Serialize the record of a finished unit."""
    parts = {table: [part.as_dict() for part in table_parts] for table, table_parts in unit.parts.items()}
    return dump_checksummed({"parts": parts, "facts": unit.facts})


def parse_unit_record(data: bytes) -> Mapping[str, Any] | None:
    """Parse the record of a finished unit; None if it is damaged, so that the unit is computed again."""
    try:
        record = load_checksummed(data)
    except ValueError:
        return None
    return record if record.keys() == {"parts", "facts"} else None


def unit_of(record: Mapping[str, Any], outputs: Mapping[str, list[Part]]) -> Unit:
    """A finished unit. Its parts are recorded whole or, in a manifest, as a range of the table's parts."""
    parts: dict[str, list[Part]] = {}
    for table, recorded in record["parts"].items():
        is_range = bool(recorded) and isinstance(recorded[0], int)
        parts[table] = outputs[table][slice(*recorded)] if is_range else [Part(**part) for part in recorded]
    return Unit(done=True, parts=parts, facts=record["facts"])
