"""Kinds: found by name, loaded when they are named, and another package's through its entry points."""

import pickle
import sys
from importlib.metadata import Distribution, EntryPoint
from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from darklode.schemas import kinds
from darklode.schemas.judging import JUDGES, JudgeSettings
from darklode.schemas.kinds import KindGroup, KindSection, OfKind, UnknownKind, kind_of, nearest, section_in
from darklode.schemas.pooling import RETRIEVERS
from darklode.schemas.section import Section
from darklode.schemas.settings import TERM_WEIGHTINGS, Settings


def test_own_kinds_are_the_files_of_the_folder_and_finding_them_loads_none() -> None:
    sys.modules.pop("darklode.pipeline.mine.term_weighting.kinds.table", None)
    assert TERM_WEIGHTINGS.own_kinds() == ["llm", "log", "table"]
    assert "darklode.pipeline.mine.term_weighting.kinds.table" not in sys.modules


def test_words_of_a_name_may_be_parted_otherwise_than_the_files() -> None:
    dashed = KindGroup("retrievers", RETRIEVERS.folder, separator="-")
    assert "cca-feedback" in dashed.own_kinds()
    assert dashed.load("cca-feedback") is RETRIEVERS.load("cca_feedback")


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(UnknownKind, match=r"there is no kind 'embeded'; did you mean embedded\?"):
        JUDGES.load("embeded")
    assert nearest("zzz", ["one", "two"]) == "known are one, two"


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points as installed packages have them: a good one, one that is broken, and one with a name of ours."""

    class Package(Distribution):
        name = "theirs"

        def read_text(self, filename: str) -> str | None:
            return None

        def locate_file(self, path: Any) -> Any:
            return path

    def found(group: str) -> list[EntryPoint]:
        targets = {"colour": "colorsys:rgb_to_hls", "broken": "no_such_module:KIND", "log": "colorsys:rgb_to_hls"}
        return [EntryPoint(name, value, group)._for(Package()) for name, value in targets.items()]  # type: ignore[attr-defined]

    monkeypatch.setattr(kinds, "entry_points", found)


def test_another_packages_kinds_come_after_our_own_and_never_in_their_place(registered: None) -> None:
    group = KindGroup(
        "planners", "darklode.pipeline.mine.term_weighting.kinds", separator="-"
    )  # another group: loads are kept
    assert group.names() == ["llm", "log", "table", "broken", "colour"]
    assert group.load("colour").__name__ == "rgb_to_hls"
    assert group.load("log").__name__ == "LogTermWeighterKind"
    with pytest.raises(
        UnknownKind, match=r"kind broken cannot be loaded from no_such_module:KIND of theirs: ModuleNot"
    ):
        group.load("broken")


class Parts(Section):
    judge: Annotated[JudgeSettings, OfKind(JUDGES, JudgeSettings)] = Field(JudgeSettings(), validate_default=True)
    named: dict[str, Annotated[JudgeSettings, OfKind(JUDGES, JudgeSettings)]] = Field({})
    plain: Section = Field(Section())
    size: int = 3


def test_the_default_kind_is_that_of_the_section() -> None:
    judge = Parts().judge
    assert (judge.kind, type(judge) is JudgeSettings) == ("embedded", False)
    assert judge.strategy == JudgeSettings().strategy


def test_a_kinds_own_keys_stand_beside_those_of_its_place() -> None:
    given = {"kind": "cross_encoder", "model": "a/b", "batch_size": 7, "strategy": "adaptive"}
    judge: Any = Parts.model_validate({"judge": given}).judge
    assert (judge.batch_size, judge.strategy) == (7, "adaptive")
    assert judge.model_dump(exclude_unset=True) == given
    with pytest.raises(ValidationError, match="extra"):
        Parts.model_validate({"judge": {"kind": "embedded", "batch_size": 7}})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "must be a section with a key `kind`"),
        ({"kind": ["llm"]}, "kind must be one of"),
        ({"kind": "no"}, "no kind 'no'"),
    ],
)
def test_what_names_no_kind_is_refused(given: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Parts.model_validate({"judge": given})


def test_the_class_of_a_place_is_one_and_travels() -> None:
    settings = Parts.model_validate({"judge": {"kind": "cross_encoder", "model": "a/b"}})
    again = pickle.loads(pickle.dumps(settings.judge))
    assert again == settings.judge
    assert type(again) is type(settings.judge)
    assert type(again).__name__ == f"{JUDGES.load('cross_encoder').__name__}InJudgeSettings"


def test_what_a_field_is() -> None:
    fields = Parts.model_fields
    assert kind_of(fields["judge"]) == kind_of(fields["named"]) == OfKind(JUDGES, JudgeSettings)
    assert kind_of(fields["size"]) is None
    assert [name for name, field in fields.items() if section_in(field)] == ["plain"]


def test_the_kinds_that_have_a_key() -> None:
    mark = kind_of(Settings.model_fields["judge"])
    assert mark is not None
    assert mark.kinds_with_key("base_url") == ["llm"]
    assert mark.kinds_with_key("threshold") == mark.group.names()
    assert mark.kinds_with_key("nothing") == []


def test_a_part_lacks_nothing_unless_it_says_so() -> None:
    class Free(KindSection):
        kind: str = "free"

    assert Free().missing() == []
