"""Run folders: what each was made from (`inputs.json`), and with which settings (`settings.yaml`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.checksummed_json import dump_checksummed, load_checksummed
from darklode.pipeline.base.artifacts.store import check_address
from darklode.pipeline.base.errors import ArtifactError, SettingsError
from darklode.pipeline.ingest.sources.address import address_kind, check_source
from darklode.schemas.folder_kinds import ADAPTER_KINDS, INPUTS

if TYPE_CHECKING:  # slow to import, and commands such as `list` need neither
    from darklode.pipeline.train.data.sources import TrainingSource
    from darklode.schemas.run_inputs import BenchmarkInputs, FolderInputs, GeneratedInputs, Inputs, MinedInputs
    from darklode.schemas.settings import Settings

SETTINGS = "settings.yaml"
N_NAMED = 3
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times faster, where it was compiled
RERUN_ADVICE = "run the command that made the run again"


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
    """The error for a folder without a run."""
    return ArtifactError(f"{run.store.url} holds no run; make one with `darklode build --out {run.store.url} …`")


def folder_kind(run: Run) -> str | None:
    """The kind of a folder, such as `benchmark` or `index`; None without a valid `inputs.json`."""
    kind = run.store.read_object(INPUTS).get("kind")
    return kind if isinstance(kind, str) else None


def is_adapter(run: Run) -> bool:
    """Whether a folder may hold an adapted or distilled query encoder; both towers of stage 1 are no such encoder."""
    content = run.store.read_object(INPUTS)
    kind = content.get("kind")
    return kind in ADAPTER_KINDS or (kind == "towers" and content.get("stage") != 1)


def read_inputs(run: Run) -> Inputs:
    """What a folder was made from.

    Raises:
        ArtifactError: `inputs.json` is missing, damaged, or of an earlier version.
    """
    from pydantic import ValidationError

    from darklode.schemas.run_inputs import parse_inputs

    data, path = run.store.read(INPUTS), run.store.path(INPUTS)
    if data is None:
        raise no_run(run)
    try:
        content = load_checksummed(data)
    except ValueError as error:
        raise ArtifactError(f"{path} is damaged ({' '.join(str(error).split())}); {RERUN_ADVICE}") from error
    if "kind" not in content:
        raise ArtifactError(
            f"{path} has no key `kind`: an earlier version of Darklode wrote it. Run the command again with a new "
            "--out; cached verdicts and vectors are reused"
        )
    try:
        return parse_inputs(content)
    except ValidationError as error:
        details = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ArtifactError(f"{path} is damaged ({details}); {RERUN_ADVICE}") from error


def write_inputs(run: Run, inputs: Inputs) -> None:
    """Write `inputs.json`; keeps the state fields of recorded inputs of the same kind."""
    from darklode.schemas.run_inputs import dump_inputs

    before = run.store.read_object(INPUTS) if inputs.state else {}
    same_kind = before.get("kind") == inputs.kind
    state = {name: before[name] for name in inputs.state if same_kind and name in before}
    content = state | dump_inputs(inputs)
    # In the order of the fields, so that unchanged inputs are written as the same bytes.
    ordered = {name: content[name] for name in type(inputs).model_fields if name in content}
    run.store.write_changed(INPUTS, dump_checksummed(ordered))


def update_inputs(run: Run, **changes: Any) -> None:
    """Change fields of `inputs.json`."""
    from darklode.schemas.run_inputs import dump_inputs

    run.store.write(INPUTS, dump_checksummed(dump_inputs(read_inputs(run).model_copy(update=changes))))


def write_settings(run: Run, settings: Settings) -> None:
    """Write `settings.yaml`."""
    text = yaml.dump(settings.model_dump(mode="json"), Dumper=_DUMPER, sort_keys=False, allow_unicode=True)
    run.store.write_changed(SETTINGS, text.encode())


def read_settings(run: Run) -> Settings:
    """The settings in `settings.yaml`; defaults if there is no such file.

    Raises:
        SettingsError: it is invalid.
    """
    from darklode.flows.config import recorded_settings

    return recorded_settings(run.store.read(SETTINGS) or b"{}")


LOCAL_ENCODER = "minilm"
"""Encoder of the preset `local`."""


def benchmark_preset(url: str) -> str:
    """The preset of a benchmark for which none is named: that of an existing run, or the best that is installed.

    Args:
        url: folder or s3:// prefix of the run.
    """
    from darklode.flows.config import DEFAULT_PRESET, installed_preset

    try:
        stored = yaml.safe_load(Run(url).store.read(SETTINGS) or b"")
    except yaml.YAMLError:  # the build writes the file again
        stored = None
    judge = stored.get("judge") if isinstance(stored, Mapping) else None
    if not isinstance(stored, Mapping) or not isinstance(judge, Mapping):
        return installed_preset()
    # --set can replace the preset's judge, but not remove its encoder.
    is_local = judge.get("kind") == "encoder" or LOCAL_ENCODER in (stored.get("encoders") or {})
    return "local" if is_local else DEFAULT_PRESET


@dataclass(frozen=True)
class RunRecord:
    """A run with what it was last made from.

    Attributes:
        run: the folder.
        inputs: inputs of a benchmark, a mined run or generated queries.
        settings: recorded settings.
    """

    run: Run
    inputs: BenchmarkInputs | MinedInputs | GeneratedInputs
    settings: Settings

    @property
    def is_mined(self) -> bool:
        """Whether the run was mined from a search log."""
        return self.inputs.kind == "mined"

    def with_overrides(self, values: Mapping[str, Any]) -> Settings:
        """The settings, with overrides as nested sections.

        Raises:
            SettingsError: an unknown key, or a value out of bounds.
        """
        from darklode.flows.config import resolve
        from darklode.schemas.setting_names import merge

        return resolve(merge(self.settings.model_dump(mode="json"), values))

    def training_source(self, number: int = 0) -> TrainingSource:
        """The run as training data; `number` is its position among several runs."""
        from darklode.pipeline.train.data.sources import TrainingSource

        return TrainingSource(self.run, number, self.is_mined, self.settings.mining.text_characters)


def write_run(run: Run, inputs: Inputs, settings: Settings) -> None:
    """Write what a folder is made from, and its settings.

    Raises:
        ArtifactError: an input's address contains a key.
    """
    from darklode.schemas.paths import to_absolute

    paths = {name: path for name in inputs.paths if (path := getattr(inputs, name)) is not None}
    for path in paths.values():
        check_source(path) if address_kind(path) in {"database", "engine", "hub"} else check_address(path)
    # inputs.json first: it marks the folder as made by Darklode
    write_inputs(run, inputs.model_copy(update={name: to_absolute(path) for name, path in paths.items()}))
    write_settings(run, settings)


def read_run(run: Run) -> RunRecord:
    """What a run was last made from.

    Raises:
        ArtifactError: the folder holds no run, or its inputs or settings are invalid.
    """
    from darklode.flows.config import recorded_settings
    from darklode.schemas.run_inputs import BenchmarkInputs, GeneratedInputs, MinedInputs

    inputs = read_inputs(run)
    if not isinstance(inputs, BenchmarkInputs | MinedInputs | GeneratedInputs):
        raise ArtifactError(f"{run.store.url} holds {inputs.description} (`{inputs.command}`), not a run")
    data = run.store.read(SETTINGS)
    if data is None:
        raise no_run(run)
    try:
        settings = recorded_settings(data)
    except SettingsError as error:  # not an error of the command line
        raise ArtifactError(f"{run.store.path(SETTINGS)}: {error}; {RERUN_ADVICE}") from error
    return RunRecord(run, inputs, settings)


def read_runs(urls: Sequence[str]) -> list[RunRecord]:
    """What several runs were last made from.

    Raises:
        ArtifactError: as for `read_run`.
    """
    return [read_run(Run(url)) for url in urls]


def read_benchmark(run: Run) -> tuple[RunRecord, BenchmarkInputs]:
    """What a benchmark was last made from.

    Raises:
        ArtifactError: the folder holds no benchmark.
    """
    record = read_run(run)
    if record.inputs.kind != "benchmark":
        inputs = record.inputs
        raise ArtifactError(f"{run.store.url} holds {inputs.description} (`{inputs.command}`), not a benchmark")
    return record, record.inputs


def output_run(url: str, inputs: type[FolderInputs]) -> Run:
    """The folder at `--out`: new, empty, or made by the same command before.

    Raises:
        ArtifactError: it holds something else.
    """
    run = Run(url)
    content = run.store.read_object(INPUTS)
    if content.get("kind") == inputs.kind_name():
        return run
    if content:
        holds = read_inputs(run)
        raise ArtifactError(f"{run.store.url} holds {holds.description} (`{holds.command}`); choose another --out")
    if names := run.store.root_names():
        some = ", ".join(names[:N_NAMED]) + (" …" if len(names) > N_NAMED else "")
        raise ArtifactError(f"{run.store.url} holds {some} and no run; choose a new or empty folder with --out")
    return run


def check_record(run: Run) -> None:
    """Check that inputs and settings of a folder exist and are undamaged.

    Raises:
        ArtifactError: a file is missing or damaged; each is named.
    """
    content = run.store.read_object(INPUTS)
    has_settings = content.get("kind") != "laws" or not content.get("points")
    names = [INPUTS, SETTINGS] if has_settings else [INPUTS]
    missing = [name for name in names if run.store.size(name) is None]
    faults = [f"{run.store.path(name)} is missing; {RERUN_ADVICE}" for name in missing]
    if INPUTS not in missing:
        try:
            read_inputs(run)
        except ArtifactError as error:
            faults += error.each
    try:
        yaml.safe_load(run.store.read(SETTINGS) or b"{}")
    except yaml.YAMLError as error:
        faults.append(f"{run.store.path(SETTINGS)} is damaged ({' '.join(str(error).split())}); {RERUN_ADVICE}")
    if faults:
        raise ArtifactError(*faults)
