"""The rules that no single setting can state, and what every setting must say."""

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from darklode.schemas import settings
from darklode.schemas.settings import Settings

LLM = {"kind": "llm", "model": "m", "base_url": "http://127.0.0.1:1/v1"}


def sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A settings type and those of the sections in it."""
    yield model
    for field in model.model_fields.values():
        for kind in kinds(field.annotation):
            yield from sections(kind)


def kinds(annotation: Any) -> list[type[BaseModel]]:
    """The settings types that an annotation names, also as members of a union or a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for part in get_args(annotation) for kind in kinds(part)]


def test_every_setting_says_what_it_means() -> None:
    found = set(sections(Settings))
    assert {settings.DocumentColumns, settings.PoolSettings, Settings} <= found
    silent = [
        f"{model.__name__}.{name}"
        for model in found
        for name, field in model.model_fields.items()
        if not field.description and not kinds(field.annotation)
    ]
    assert not silent


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clean": {"min_percentile": 95}}, "min_percentile 95.0 must be below max_percentile 95"),
        ({"chunk": {"overlap": 500}}, "overlap 500 must be smaller than size 500"),
        ({"labels": {"human_overrides": True}}, "labels.human_overrides needs judge.human_labels"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        Settings.model_validate(given)


@pytest.mark.parametrize(
    "given",
    [
        {"clean": {"min_percentile": 94.9}},
        {"chunk": {"overlap": 499}},
        {"labels": {"human_overrides": True}, "judge": {"human_labels": "labels.csv"}},
    ],
)
def test_what_just_agrees_is_taken(given: dict[str, Any]) -> None:
    assert Settings.model_validate(given) != Settings()


def test_settings_are_read_once_and_never_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().seed = 3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="extra"):
        Settings.model_validate({"sed": 3})


def test_an_error_shows_no_value() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"judge": LLM | {"base_url": "http://me:s3cret@host"}})
    assert "s3cret" not in str(caught.value)
