"""A section of the settings as the kind that it is."""

import pytest

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.judge.kinds import JudgeKind, LedgerKind
from darklode.pipeline.mine.term_weighting.kinds import TermWeighterKind
from darklode.schemas.kinds import KindSection
from darklode.schemas.settings import Settings


def test_what_settings_name_is_of_its_port() -> None:
    settings = Settings()
    assert as_kind(settings.judge, JudgeKind) is settings.judge
    assert as_kind(settings.term_weighting, TermWeighterKind) is settings.term_weighting


def test_what_another_package_registered_under_a_name_must_be_of_the_port() -> None:
    class Bare(KindSection):
        kind: str = "bare"

    with pytest.raises(SettingsError, match=r"^kind bare must be a TermWeighterKind, and Bare is none$"):
        as_kind(Bare(), TermWeighterKind)
    with pytest.raises(SettingsError, match="must be a LedgerKind"):
        as_kind(Settings().judge, LedgerKind)
