"""The LLM query writer as a kind: the judge's model, at the judge's servers, within the judge's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.generate.kinds import GeneratorKind
from darklode.pipeline.generate.llm_settings import LlmWriterSettings

if TYPE_CHECKING:
    from darklode.pipeline.generate.llm import LlmWriter
    from darklode.schemas.settings import Settings


class LlmWriterKind(LlmWriterSettings, GeneratorKind):
    """The language model of `judge.kind: llm`, with the judge's servers, API key, prices and limits."""

    def writer(self, settings: Settings) -> LlmWriter:
        """Build the writer.

        Raises:
            SettingsError: the judge is not a language model.
        """
        from darklode.pipeline.generate.llm import LlmWriter
        from darklode.pipeline.judge.factory import configure_judge
        from darklode.pipeline.judge.kinds.llm import LlmJudgeKind

        judge = configure_judge(settings)
        if not isinstance(judge, LlmJudgeKind):
            raise SettingsError(
                f"generate.kind llm uses the judge's model, but judge.kind is {judge.kind}: set judge.kind=llm, "
                "judge.model and judge.base_url"
            )
        return LlmWriter(self, judge, settings.cache.root)


KIND = LlmWriterKind
