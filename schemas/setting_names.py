"""The names of settings: all that there are, those that a kind does not have, and what was meant by a wrong one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from darklode.schemas.judging import JudgeSettings
from darklode.schemas.kinds import OfKind, UnknownKind, kind_of, nearest, section_in
from darklode.schemas.section import Section
from darklode.schemas.settings import Settings

NAME = "NAME"
"""Stands for what users name themselves: `encoders.NAME.model`."""

FORMER = {
    ("judge", "max_disagreement"): "the label that the model wrote stands; verdicts.contradicted marks one that its "
    "log-probabilities are against"
}
"""Settings that there were, by section and name, and what became of them. Runs may have recorded them."""


@dataclass(frozen=True)
class UnknownKey:
    """A key that is no setting.

    Attributes:
        path: the key or, of an unknown kind, its section: the values below it cannot be checked.
        message: names the nearest setting, or the kind that has it.
    """

    path: str
    message: str


@dataclass(frozen=True)
class Key:
    """A setting.

    Attributes:
        path: its name, with the sections that it lies in.
        field: default, bounds and description.
        kind: which kind has it; empty for one that does not depend on a kind.
    """

    path: str
    field: FieldInfo
    kind: str = ""


def keys(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[Key]:
    """Every setting; of kinds only Darklode's own, each with all the keys that are not the section's."""
    for name, field in model.model_fields.items():
        section, mark = section_in(field), kind_of(field)
        if section:
            yield from keys(section, f"{prefix}{name}.")
        elif mark and _is_section(field):
            yield from _of_kinds(mark, f"{prefix}{name}.")
        elif mark and _is_named(field):
            yield from _of_kinds(mark, f"{prefix}{name}.{NAME}.")
        else:
            yield Key(prefix + name, field)


def _of_kinds(mark: OfKind, prefix: str) -> Iterator[Key]:
    yield from keys(mark.base, prefix)
    for kind in mark.group.own_kinds():
        own = mark.section(kind).model_fields.items()
        yield from (Key(prefix + name, field, kind) for name, field in own if name not in mark.base.model_fields)


def kinds() -> Iterator[tuple[str, OfKind]]:
    """The sections that are of a kind, by name."""
    for name, field in Settings.model_fields.items():
        if mark := kind_of(field):
            yield (name if _is_section(field) else f"{name}.{NAME}"), mark


def known_keys() -> list[str]:
    """Dotted names of all settings, each once."""
    return list(dict.fromkeys(key.path for key in keys()))


def _is_section(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is None


def _is_named(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is dict


def unknown_keys(
    values: Mapping[Any, Any], model: type[BaseModel] = Settings, prefix: str = ""
) -> Iterator[UnknownKey]:
    """The keys in nested plain values that are no settings; what the values are is not looked at.

    These are keys that do not exist, or not in this kind, sections that are no mapping, and kinds that do not exist.
    """
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is None:
            yield UnknownKey(f"{prefix}{name}", _unknown_key_message(f"{prefix}{name}", value))
        else:
            yield from _child_keys(field, value, f"{prefix}{name}")


def _child_keys(field: FieldInfo, value: Any, path: str) -> Iterator[UnknownKey]:
    section, mark = section_in(field), kind_of(field)
    if (section or (mark and (_is_section(field) or _is_named(field)))) and not isinstance(value, Mapping):
        yield _no_section(path)
    elif section:
        yield from unknown_keys(value, section, f"{path}.")
    elif mark and _is_section(field):
        yield from _below_kind(mark, value, path)
    elif mark and _is_named(field):
        for name, child in value.items():
            yield from _below_kind(mark, child, f"{path}.{name}")
    elif mark:
        for number, member in enumerate(value if isinstance(value, list | tuple) else ()):
            yield from _below_kind(mark, member, f"{path}.{number}")
    elif isinstance(value, Mapping) and get_origin(field.annotation) is not dict and value:
        yield UnknownKey(path, _unknown_key_message(path, value))


def _below_kind(mark: OfKind, values: Any, path: str) -> Iterator[UnknownKey]:
    if not isinstance(values, Mapping):
        yield _no_section(path)
        return
    try:
        kind = mark.kind_in(values)
        section = mark.section(kind)
    except UnknownKind as error:
        yield UnknownKey(path, f"{path}.kind: {error}")
        return
    for name, value in values.items():
        field = section.model_fields.get(name)
        if field is None:
            yield UnknownKey(f"{path}.{name}", _not_of_this_kind(mark, kind, path, str(name)))
        else:
            yield from _child_keys(field, value, f"{path}.{name}")


def _no_section(path: str) -> UnknownKey:
    return UnknownKey(path, f"{path} is a section; set {path}.<key> or leave it out")


def _unknown_key_message(path: str, value: Any) -> str:
    while isinstance(value, Mapping) and value:
        name, value = next(iter(value.items()))
        path = f"{path}.{name}"
    if isinstance(value, Mapping) or path in known_keys():
        return f"{path}: there is no such section; a section's keys stand below it, without dots"
    return f"there is no setting {path}; {nearest(path, known_keys())}"


def _not_of_this_kind(mark: OfKind, kind: str, path: str, name: str) -> str:
    """Says which kind has the key, or what became of it, or else which key was meant."""
    if became := FORMER.get((path.partition(".")[0], name)):
        return f"{path}.{name} is gone: {became}"
    if holders := mark.kinds_with_key(name):
        return f"{path}.{name} is a setting of kind {' and '.join(holders)}; {path}.kind is {kind}"
    own = list(mark.section(kind).model_fields)
    other_keys = [key for kind_name in mark.group.own_kinds() for key in mark.section(kind_name).model_fields]
    close = get_close_matches(name, [*own, *other_keys], n=1, cutoff=0.5)
    if not close:
        return f"there is no setting {path}.{name}; known are {', '.join(f'{path}.{key}' for key in own)}"
    of_another = "" if close[0] in own else f" It is one of kind {' and '.join(mark.kinds_with_key(close[0]))}."
    return f"there is no setting {path}.{name}; did you mean {path}.{close[0]}?{of_another}"


def merge(base: Mapping[str, Any], over: Mapping[str, Any], model: type[BaseModel] = Settings) -> dict[str, Any]:
    """`base` with the values of `over` in their places; sections merge, values replace.

    Where `over` names another kind than `base`, the keys of the kind before go.
    """
    merged = dict(base)
    for name, value in over.items():
        field, before = model.model_fields.get(name), merged.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            merged[name] = _merge_value(field, before, value)
        else:
            merged[name] = value
    return merged


def _merge_value(field: FieldInfo | None, before: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    mark = kind_of(field) if field else None
    if field is None or mark is None:
        return merge(before, over, (section_in(field) if field else None) or Section)
    if _is_section(field):
        return _of_one_kind(mark, before, over)
    both = {name for name in before if isinstance(before[name], Mapping) and isinstance(over.get(name), Mapping)}
    return {**before, **over, **{name: _of_one_kind(mark, before[name], over[name]) for name in both}}


def _of_one_kind(mark: OfKind, before: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    same = "kind" not in before or over.get("kind", before["kind"]) == before["kind"]
    return merge(
        {name: value for name, value in before.items() if same or name in mark.base.model_fields}, over, Section
    )


def without_former_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded values without `FORMER` keys and those of other kinds: once those of all kinds were recorded."""
    remaining = dict(values)
    for name, field in Settings.model_fields.items():
        mark = kind_of(field)
        if mark and _is_section(field) and isinstance(values.get(name), Mapping):
            remaining[name] = _own_values(mark, values[name], name)
    members = remaining.get("judge", {}).get("panel")
    if members:
        mark = kind_of(JudgeSettings.model_fields["panel"])
        assert mark is not None
        remaining["judge"] |= {"panel": [_own_values(mark, member, "judge") for member in members]}
    return remaining


def _own_values(mark: OfKind, values: Mapping[str, Any], section: str) -> dict[str, Any]:
    own = mark.section(mark.kind_in(values)).model_fields
    other_kinds = {name for name in values if mark.kinds_with_key(name) or (section, name) in FORMER}
    return {name: value for name, value in values.items() if name in own or name not in other_kinds}


def iterate_leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value in nested sections, with its dotted name."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from iterate_leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
