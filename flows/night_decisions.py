"""Commands that accept or discard held days of a mined run, made from what the run was made from."""

import shlex
from collections.abc import Callable

from darklode.flows.runs import SETTINGS, existing, read_inputs
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.run_inputs import MinedInputs


def read_mined(url: str) -> tuple[Run, MinedInputs]:
    """Open a mined run.

    Raises:
        ArtifactError: the folder holds no run, or another kind.
    """
    run = existing(url)
    inputs = read_inputs(run)
    if not isinstance(inputs, MinedInputs):
        raise ArtifactError(f"{run.store.url} holds {inputs.description} (`{inputs.command}`), not mined triplets")
    return run, inputs


def run_decision_command(run: Run, inputs: MinedInputs) -> Callable[[str, str], str]:
    """A function that returns the command for an option (`--accept-day` or `--discard-day`) and the name of a day.

    The settings are those of the run; on S3 they have no local file, and the options of the nightly command apply.
    """
    arguments = ["darklode", "mine", "--logs", inputs.logs, "--docs", inputs.docs, "--out", run.store.url]
    if run.store.local is not None:
        arguments += ["--config", str(run.store.local / SETTINGS)]
    return lambda option, day: shlex.join([*arguments, option, day, "--reason", "…"])
