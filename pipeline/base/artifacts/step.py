"""A step of a job: a stage, the function that computes it, and the arguments that determine its fingerprint."""

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
    """An object passed to a stage that can change its output: a judge, an encoder, the history of a run."""

    @property
    def identity(self) -> Any:
        """Everything that can change its results, as plain values; a mapping if the stage receives the port itself."""


@dataclass(frozen=True)
class StageCall:
    """A stage's function and its arguments by name, except for the first two (tables and output)."""

    function: Callable[..., None]
    arguments: Mapping[str, Any]


def call(function: Callable[Concatenate[Any, Output, P], None], *args: P.args, **kwargs: P.kwargs) -> StageCall:
    """Bind a stage's function to settings sections, single settings and ports. Default arguments are not included."""
    bound = signature(function).bind(None, None, *args, **kwargs)
    return StageCall(function, dict(list(bound.arguments.items())[2:]))  # without tables and output


@dataclass(frozen=True)
class Step:
    """A stage of a job, bound to everything that it depends on.

    The fingerprint is made of exactly the function's arguments: settings not marked `NoRow` for sections, `identity`
    for ports, and plain values themselves.

    Attributes:
        stage: name, and tables read and written.
        receives: the function and its arguments, or a function that returns them if they depend on tables of earlier
            stages; it is called for planning and again for execution.
        inputs: returns fingerprints of inputs other than tables, such as files.
        untracked: parameters left out of the fingerprint, because `inputs` cover them or they change no row.
        source: what the function reads instead of tables, such as the path of a folder.
        enabled: whether the settings enable this step.
    """

    stage: Stage
    receives: StageCall | Callable[[], StageCall]
    inputs: Callable[[], Mapping[str, str]] = field(default=dict)
    untracked: tuple[str, ...] = ()
    source: object = None
    enabled: bool = True

    def plan(self, run: Run) -> Plan:
        """Compare the stage's inputs with its last complete run."""
        settings, bounds = _settings(self.call, self.untracked)
        return run.plan(self.stage, settings, self.inputs(), bounds)

    def execute(self, tables: Tables, output: Output) -> None:
        """Run the stage's function."""
        call = self.call
        call.function(tables if self.source is None else self.source, output, **call.arguments)

    @property
    def call(self) -> StageCall:
        """The stage's function and its arguments, in the current state of the run."""
        return self.receives if isinstance(self.receives, StageCall) else self.receives()


def _settings(call: StageCall, untracked: tuple[str, ...]) -> tuple[dict[str, Any], frozenset[str]]:
    """The arguments as plain values, and the names of those that only decide whether the stage fails.

    Raises:
        ValueError: two arguments have different values for a name, or an untracked parameter does not exist.
    """
    if missing := [name for name in untracked if name not in call.arguments]:
        raise ValueError(f"{call.function.__name__}: no parameter {', '.join(missing)}")
    settings: dict[str, Any] = {}
    bounds = set[str]()
    for name, argument in call.arguments.items():
        if name in untracked:
            continue
        values = _values(name, argument)
        repeated = [key for key, value in values.items() if settings.get(key, value) != value]
        if repeated:
            raise ValueError(f"{call.function.__name__}: two arguments set {', '.join(repeated)}")
        settings |= values
        bounds |= values.keys() - argument.shaping() if isinstance(argument, Section) else set()
    return settings, frozenset(bounds)


def _values(name: str, argument: Any) -> Mapping[str, Any]:
    """Values of an argument that can change a row or make the stage fail, by setting name."""
    if isinstance(argument, Section):
        return argument.decisive()
    if isinstance(argument, Port):
        return dict(argument.identity)
    if isinstance(argument, Mapping):
        return {name: {key: port.identity for key, port in argument.items()}}
    return {name: argument.isoformat() if isinstance(argument, date) else argument}
