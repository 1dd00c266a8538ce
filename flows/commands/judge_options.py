"""Judge settings of the `judge` commands."""

from dataclasses import replace
from typing import TYPE_CHECKING

from darklode.flows.config import load_settings, overrides
from darklode.flows.console import console, printable
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import DarklodeError, SettingsError
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.settings import Settings

if TYPE_CHECKING:
    from darklode.pipeline.judge.llm.response_formats import OutputFormat, RequestTemplate
    from darklode.pipeline.judge.llm.settings import LlmSettings

_PROBE_SECONDS = 10.0


def settings_of(run: str | None, assignments: list[str] | None) -> Settings:
    """Settings of a run, or the defaults if it is None, with the command line's overrides."""
    if run is None:
        return load_settings(assignments=assignments or [])
    from darklode.flows.runs import read_benchmark

    record, _ = read_benchmark(Run(run))
    return record.with_overrides(overrides(assignments or []))


def template_of(chosen: Settings) -> "RequestTemplate":
    """Request template that `darklode build` would use: the output format of stored verdicts or of the server.

    Without stored verdicts and without a server, uses the format of `judge.response_format` and prints a warning.

    Raises:
        DarklodeError: no server answers, and `judge.response_format` is auto.
    """
    from darklode.pipeline.judge.llm.judge import LlmJudge
    from darklode.pipeline.judge.llm.prompt import load_prompt
    from darklode.pipeline.judge.llm.response_formats import RequestTemplate

    settings = language_model(chosen.judge)
    probe_settings = settings.model_copy(update={"retry_timeout": min(settings.retry_timeout, _PROBE_SECONDS)})
    try:
        return replace(LlmJudge(probe_settings, _warn, chosen.cache.root).template, settings=settings)
    except SettingsError:
        raise
    except DarklodeError as error:
        if settings.response_format == "auto":
            raise DarklodeError(
                f"{error}. Without a server, set a format: --set judge.response_format=choice"
            ) from error
        form = strictest_format(settings)
        _warn(f"{error}. The calls request {form} without checking that the server supports it.")
        return RequestTemplate(settings, load_prompt(settings.prompt), form)


def _warn(sentence: str) -> None:
    console.print(f"[yellow]{printable(sentence)}[/yellow]", soft_wrap=True)


def language_model(settings: JudgeSettings) -> "LlmSettings":
    """Narrow to the settings of an LLM judge.

    Raises:
        SettingsError: another kind of judge.
    """
    from darklode.pipeline.judge.llm.settings import LlmSettings

    if not isinstance(settings, LlmSettings):
        raise SettingsError(f"this command requires judge.kind llm, not {settings.kind}; add --set judge.kind=llm")
    return settings


def strictest_format(settings: "LlmSettings") -> "OutputFormat":
    """The strictest output format that the settings allow."""
    from darklode.pipeline.judge.llm.response_formats import OutputFormat

    mode = "json" if settings.rationale else "choice"
    return OutputFormat(
        mode if settings.response_format == "auto" else settings.response_format,
        logprobs=True,
        rationale=settings.rationale,
    )
