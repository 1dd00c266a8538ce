"""The judge that a command is about: a run's, as the command line changes it."""

from dataclasses import replace
from typing import TYPE_CHECKING

from darklode.flows.config import load_settings, overrides
from darklode.flows.console import console, printable
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import DarklodeError, SettingsError
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.settings import Settings

if TYPE_CHECKING:
    from darklode.pipeline.judge.kinds.llm import LlmSettings
    from darklode.pipeline.judge.llm.response_formats import OutputFormat, RequestTemplate

_PROBE_SECONDS = 10.0


def settings_of(run: str | None, assignments: list[str] | None) -> Settings:
    """The run's settings, or the defaults, with what the command line sets."""
    if run is None:
        return load_settings(assignments=assignments or [])
    from darklode.flows.runs import benchmark

    return benchmark(Run(run)).with_overrides(overrides(assignments or []))


def template_of(chosen: Settings) -> "RequestTemplate":
    """The judge as `darklode build` would ask it: in the form of the verdicts that are kept, or that the server obeys.

    Where there are none, no server answers and judge.response_format names one, its strictest form is taken, and said.
    """
    from darklode.pipeline.judge.llm.judge import LlmJudge
    from darklode.pipeline.judge.llm.prompt import load_prompt
    from darklode.pipeline.judge.llm.response_formats import RequestTemplate

    settings = language_model(chosen.judge)
    impatient = settings.model_copy(update={"retry_timeout": min(settings.retry_timeout, _PROBE_SECONDS)})
    try:
        return replace(LlmJudge(impatient, _warn, chosen.cache.root).template, settings=settings)
    except SettingsError:
        raise
    except DarklodeError as error:
        if settings.response_format == "auto":
            raise DarklodeError(
                f"{error}. Without a server to ask, name a form: --set judge.response_format=choice"
            ) from error
        form = strictest_format(settings)
        _warn(f"{error}. The calls ask for {form} unchecked.")
        return RequestTemplate(settings, load_prompt(settings.prompt), form)


def _warn(sentence: str) -> None:
    console.print(f"[yellow]{printable(sentence)}[/yellow]", soft_wrap=True)


def language_model(settings: JudgeSettings) -> "LlmSettings":
    """The settings of a language model.

    Raises:
        SettingsError: it is another kind of judge.
    """
    from darklode.pipeline.judge.kinds.llm import LlmSettings

    if not isinstance(settings, LlmSettings):
        raise SettingsError(f"batch files are for judge.kind llm, not {settings.kind}; add --set judge.kind=llm")
    return settings


def strictest_format(settings: "LlmSettings") -> "OutputFormat":
    """The first form that the settings allow."""
    from darklode.pipeline.judge.llm.response_formats import OutputFormat

    mode = "json" if settings.rationale else "choice"
    return OutputFormat(
        mode if settings.response_format == "auto" else settings.response_format,
        logprobs=True,
        rationale=settings.rationale,
    )
