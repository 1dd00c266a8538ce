"""No judge: labels come from people or from given judgments alone."""

from __future__ import annotations

from typing import ClassVar, Literal

from darklode.pipeline.judge.kinds import Builder, JudgeKind
from darklode.schemas.settings import CacheSettings


class NoJudgeSettings(JudgeKind):
    """No judge; candidates without a judgment stay without a label."""

    JUDGES_NEW_TEXTS: ClassVar[bool] = False

    kind: Literal["none"] = "none"

    def builder(self, _cache_settings: CacheSettings) -> Builder:
        """There is none.

        Raises:
            SettingsError: always.
        """
        from darklode.pipeline.base.errors import SettingsError

        raise SettingsError("judge.kind is none; set another kind to judge pairs")


KIND = NoJudgeSettings
