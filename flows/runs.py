"""Runs: the one that a command is given, and what each is made from, kept beside its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.checksummed_json import KEY as SEAL
from darklode.pipeline.base.artifacts.checksummed_json import dump_checksummed, load_checksummed
from darklode.pipeline.base.artifacts.store import check_address
from darklode.pipeline.base.errors import ArtifactError, SettingsError

if TYPE_CHECKING:  # settings take as long to import as all the rest, and `existing` needs none
    from darklode.schemas.settings import Settings

INPUTS, SETTINGS = "inputs.json", "settings.yaml"
SOURCES = ("docs", "queries", "logs")
"""What a run may be made from; the rest of what is noted is no path."""

ADAPTED = "adapted"
"""What is noted in a folder that `darklode adapt` fills: the runs that it learned from."""

STAGE = "stage"
"""What is noted besides in a folder that `darklode train-towers` fills with both towers: 1."""

INDEXED = "indexed"
"""What is noted in a folder that `darklode index` fills: the run, or the file of vectors, that it is of."""

GENERATED = "generated"
"""What is noted in a folder that `darklode generate` fills, and the source of its triplets: the run that it is of."""

LAWS = "laws"
"""What is noted in a folder that `darklode laws` fills: the runs, or the file of points, that they are of."""


def existing(url: str) -> Run:
    """The run at a folder or prefix.

    Raises:
        ArtifactError: no stage is complete there.
    """
    run = Run(url)
    if not run.manifests():
        raise no_run(run)
    return run


def no_run(run: Run) -> ArtifactError:
    """What to raise where a folder holds no run."""
    return ArtifactError(f"{run.store.url} holds no run; make one with `darklode build --out {run.store.url} …`")


@dataclass(frozen=True)
class RunInputs:
    """What a run was last made from.

    Attributes:
        inputs: absolute paths, by what lies there: `docs`, and `queries` or `logs`.
        settings: in force.
    """

    inputs: Mapping[str, str]
    settings: Settings

    @property
    def is_mined(self) -> bool:
        """Whether the run is made from a search log."""
        return "logs" in self.inputs

    def with_overrides(self, values: Mapping[str, Any]) -> Settings:
        """The settings with others in their places, given as nested sections.

        Raises:
            SettingsError: one of them cannot be.
        """
        from darklode.flows.config import resolve
        from darklode.schemas.setting_names import merge

        return resolve(merge(self.settings.model_dump(mode="json"), values))


NAMED = 3


def output_run(url: str, *, mined: bool) -> Run:
    """The run at a folder or prefix, or a new one where nothing lies yet.

    Args:
        url: where.
        mined: whether it is to be made from a search log.

    Raises:
        ArtifactError: what lies there is no run, or one of the other kind.
    """
    run = Run(url)
    before = read_notes(run)
    if "docs" not in before:
        lies = run.store.root_names()
        if lies:
            some = ", ".join(lies[:NAMED]) + (" …" if len(lies) > NAMED else "")
            raise ArtifactError(f"{run.store.url} holds {some} and no run; choose a folder of its own with --out")
    elif ("logs" in before) != mined:
        content = "triplets made by `darklode mine`" if "logs" in before else "a benchmark made by `darklode build`"
        raise ArtifactError(f"{run.store.url} holds {content}; choose another --out")
    return run


def record(run: Run, inputs: Mapping[str, str], settings: Settings) -> None:
    """Note what the run is made from.

    Args:
        run: a run, or a folder for one.
        inputs: as in `RunInputs`.
        settings: in force.

    Raises:
        ArtifactError: an input's address carries a key.
    """
    from darklode.schemas.paths import to_absolute

    for input_path in inputs.values():
        check_address(input_path)
    # first: it is what tells a run's folder from any other
    note(run, {name: to_absolute(path) for name, path in inputs.items()})
    chosen = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    run.store.write(SETTINGS, chosen.encode())


def read_inputs(run: Run) -> RunInputs:
    """What a run was last made from.

    Raises:
        ArtifactError: the folder holds no run, or settings that are none.
    """
    from darklode.flows.config import recorded_settings

    inputs, settings = read_notes(run), run.store.read(SETTINGS)
    if LAWS in inputs:
        raise ArtifactError(f"{run.store.url} holds laws made by `darklode laws`, and no run")
    if not inputs or settings is None:
        raise no_run(run)
    if ADAPTED in inputs:
        raise ArtifactError(f"{run.store.url} holds an encoder made by `darklode adapt`, and no run")
    if INDEXED in inputs:
        raise ArtifactError(f"{run.store.url} holds an index made by `darklode index`, and no run")
    try:
        return RunInputs({name: inputs[name] for name in SOURCES if name in inputs}, recorded_settings(settings))
    except SettingsError as error:  # nobody typed them now
        raise ArtifactError(f"{run.store.path(SETTINGS)}: {error}; run the command that made the run again") from error


def benchmark(run: Run) -> RunInputs:
    """What a benchmark was last made from.

    Raises:
        ArtifactError: the folder holds no run, or one that is mined from a log.
    """
    inputs = read_inputs(run)
    if inputs.is_mined:
        raise ArtifactError(f"{run.store.url} holds triplets made by `darklode mine`, and no benchmark")
    return inputs


def read_notes(run: Run) -> dict[str, Any]:
    """What is noted of a run's making; empty where nothing is, or a file of this name is no note of ours."""
    return {name: value for name, value in run.store.read_object(INPUTS).items() if name != SEAL}


def check_complete(run: Run) -> None:
    """Make sure that what is noted of a run's making is what was written, and that its settings are some.

    Raises:
        ArtifactError: it is not.
    """
    for name, read in ((INPUTS, load_checksummed), (SETTINGS, yaml.safe_load)):
        try:
            read(run.store.read(name) or b"{}")
        except (ValueError, yaml.YAMLError) as error:
            text = " ".join(str(error).split())
            message = f"{run.store.path(name)} is damaged ({text})"
            raise ArtifactError(f"{message}; run the command that made the run again") from error


def require_notes(run: Run) -> None:
    """Make sure that a run's inputs and settings are noted: laws of a file have no settings.

    Raises:
        ArtifactError: a file is missing.
    """
    about = read_notes(run)
    without_settings = LAWS in about and "encoders" not in about
    names = [INPUTS] if without_settings else [INPUTS, SETTINGS]
    missing = [run.store.path(name) for name in names if run.store.size(name) is None]
    if missing:
        raise ArtifactError(*(f"{path} is missing; run the command that made the run again" for path in missing))


def note(run: Run, facts: Mapping[str, Any]) -> None:
    """Note something more of a run's making."""
    run.store.write(INPUTS, dump_checksummed({**read_notes(run), **facts}))
