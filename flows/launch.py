"""How a command runs a flow: at once where nothing is to be done, under Prefect otherwise."""

from collections.abc import Callable
from typing import Any

from darklode.flows.executor import DryRun, StageIsDue, executing
from darklode.flows.prefect.progress import OnceReporter, Reporter, reporting
from darklode.flows.prefect.server import prefect_server


def launch(body: Callable[..., Any], reporter: Reporter, *args: Any, **kwargs: Any) -> None:
    """Run a flow to its end.

    A flow whose stages all stand needs no server, and leaves no flow run. Stages that stand before the first one that
    has to run are gone through twice, and reported once.

    Args:
        body: the flow's function; `darklode.flows.prefect.orchestration` has a flow of its name.
        reporter: follows it.

    Raises:
        MissingPart: no Prefect server answers.
    """
    with reporting(OnceReporter(reporter)):
        try:
            with executing(DryRun()):
                body(*args, **kwargs)
            return
        except StageIsDue as due:
            reporter.say(f"From {due} on there is work to do; starting.")
        with prefect_server() as server:
            from darklode.flows.prefect import orchestration

            server.wait()
            with executing(orchestration.Tasks(artifacts=server.is_persistent)), orchestration.drain_events():
                getattr(orchestration, body.__name__)(*args, **kwargs)
