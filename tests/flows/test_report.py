import pytest

from darklode.flows.report import write_report
from darklode.flows.runs import write_inputs
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.run_inputs import IndexInputs


def test_a_job_without_sections_has_no_report(run: Run) -> None:
    write_inputs(run, IndexInputs(source="r", encoder="e", tenant="t"))
    with pytest.raises(ArtifactError, match="holds an index, which has no report"):
        write_report(run)
