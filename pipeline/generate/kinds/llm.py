"""The writer that is a language model: the judge's own, at the judge's servers, within its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.generate.kinds import GeneratorKind
from darklode.schemas.paths import PathField
from darklode.schemas.shared import PromptName

if TYPE_CHECKING:
    from darklode.pipeline.generate.llm import LlmWriter
    from darklode.schemas.settings import Settings


class LlmWriterSettings(GeneratorKind):
    """The language model of `judge.kind: llm`, with the judge's servers, API key, prices and limits."""

    kind: Literal["llm"] = "llm"
    prompt: Annotated[str, PathField(or_name=True, names=("default",))] = Field("default", description=PromptName)
    n_examples: int = Field(
        8, ge=0, description="Few-shot examples: real training queries in the prompt, drawn with the seed."
    )
    temperature: float = Field(0.7, ge=0, description="Sampling temperature.")

    def writer(self, settings: Settings) -> LlmWriter:
        """See `GeneratorKind`.

        Raises:
            SettingsError: the judge is no language model.
        """
        from darklode.pipeline.generate.llm import LlmWriter
        from darklode.pipeline.judge.factory import configure_judge
        from darklode.pipeline.judge.kinds.llm import LlmSettings

        judge = configure_judge(settings)
        if not isinstance(judge, LlmSettings):
            raise SettingsError(
                f"generate.kind llm asks the judge's model, and judge.kind is {judge.kind}: set judge.kind=llm, "
                "judge.model and judge.base_url"
            )
        return LlmWriter(self, judge, settings.cache.root)


KIND = LlmWriterSettings
