"""A step of a job: a stage, its function and all that the function receives, from which its fingerprint follows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from inspect import signature
from typing import Any, Concatenate, ParamSpec, Protocol, runtime_checkable

from darklode.pipeline.base.artifacts.output import Output
from darklode.pipeline.base.artifacts.run import Run
from darklode.pipeline.base.artifacts.stage import Plan, Stage
from darklode.pipeline.base.artifacts.tables import Tables
from darklode.schemas.section import Section

P = ParamSpec("P")


@runtime_checkable
class Port(Protocol):
    """What does a stage's work for it, and names itself: a judge, a planner, what the run knows of earlier nights."""

    @property
    def identity(self) -> Any:
        """All that can change what it gives, as plain values: by name, where a stage receives the port itself."""


@dataclass(frozen=True)
class StageCall:
    """A stage's function, and what it receives besides what it reads and its output, by the parameters' names."""

    function: Callable[..., None]
    arguments: Mapping[str, Any]


def call(function: Callable[Concatenate[Any, Output, P], None], *args: P.args, **kwargs: P.kwargs) -> StageCall:
    """Bind a stage's function to sections of the settings, single settings and ports. A default is not received."""
    bound = signature(function).bind(None, None, *args, **kwargs)
    return StageCall(function, dict(list(bound.arguments.items())[2:]))


@dataclass(frozen=True)
class Step:
    """A stage of a job, bound to all that it depends on.

    A function sees the settings that it receives and no others, and the fingerprint is made of these very values:
    sections give theirs that are not marked `NoRow`, ports their `identity`, single values themselves.

    Attributes:
        stage: its name, and the tables that it reads and writes.
        receives: its function and what that receives; or what gives these, where some of it is learned from tables
            that earlier stages write: it is asked when the step is planned and when it works.
        inputs: gives fingerprints of what is read besides tables, such as files.
        untracked: parameters that no fingerprint names: `inputs` stand for them, or they change no row.
        source: what the function reads in the tables' place, such as the path of a folder.
        enabled: whether the settings ask for this step.
    """

    stage: Stage
    receives: StageCall | Callable[[], StageCall]
    inputs: Callable[[], Mapping[str, str]] = field(default=dict)
    untracked: tuple[str, ...] = ()
    source: object = None
    enabled: bool = True

    def plan(self, run: Run) -> Plan:
        """Compare what the stage depends on with its last complete run."""
        settings, bounds = _settings(self.call, self.untracked)
        return run.plan(self.stage, settings, self.inputs(), bounds)

    def execute(self, tables: Tables, output: Output) -> None:
        """Do the stage's work."""
        call = self.call
        call.function(tables if self.source is None else self.source, output, **call.arguments)

    @property
    def call(self) -> StageCall:
        """The stage's function and what it receives, as the run stands."""
        return self.receives if isinstance(self.receives, StageCall) else self.receives()


def _settings(call: StageCall, untracked: tuple[str, ...]) -> tuple[dict[str, Any], frozenset[str]]:
    """What a function receives as plain values, and the names of those that only decide whether it fails.

    Raises:
        ValueError: two arguments give one name different values, or an untracked parameter does not exist.
    """
    if missing := [name for name in untracked if name not in call.arguments]:
        raise ValueError(f"{call.function.__name__}: no parameter {', '.join(missing)}")
    settings: dict[str, Any] = {}
    bounds = set[str]()
    for name, argument in call.arguments.items():
        if name in untracked:
            continue
        values = _values(name, argument)
        twice = [key for key, value in values.items() if settings.get(key, value) != value]
        if twice:
            raise ValueError(f"{call.function.__name__}: two arguments name {', '.join(twice)}")
        settings |= values
        bounds |= values.keys() - argument.shaping() if isinstance(argument, Section) else set()
    return settings, frozenset(bounds)


def _values(name: str, argument: Any) -> Mapping[str, Any]:
    """All of an argument that can change a row or make the stage fail, by name."""
    if isinstance(argument, Section):
        return argument.decisive()
    if isinstance(argument, Port):
        return dict(argument.identity)
    if isinstance(argument, Mapping):
        return {name: {key: port.identity for key, port in argument.items()}}
    return {name: argument.isoformat() if isinstance(argument, date) else argument}
