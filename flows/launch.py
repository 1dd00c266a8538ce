"""Running a flow from a command: under Prefect, unless every stage is up to date."""

from collections.abc import Callable
from typing import Any

from darklode.flows.executor import DryRun, StageIsDue, executing
from darklode.flows.prefect.progress import OnceReporter, Reporter, reporting
from darklode.flows.prefect.server import prefect_server


def launch(body: Callable[..., Any], reporter: Reporter, *args: Any, **kwargs: Any) -> None:
    """Run a flow.

    If all stages are up to date, no server is started and there is no flow run. Otherwise stages before the first one
    that is due are passed over twice, but reported once.

    Args:
        body: the flow's function; `darklode.flows.prefect.orchestration` has a flow with its name.
        reporter: receives progress.

    Raises:
        MissingPart: no Prefect server answers.
    """
    with reporting(OnceReporter(reporter)):
        try:
            with executing(DryRun()):
                body(*args, **kwargs)
            return
        except StageIsDue as due:
            reporter.say(f"Starting at stage {due}; earlier stages are up to date.")
        with prefect_server() as server:
            from darklode.flows.prefect import orchestration

            server.wait()
            with executing(orchestration.Tasks(artifacts=server.is_persistent)), orchestration.drain_events():
                getattr(orchestration, body.__name__)(*args, **kwargs)
