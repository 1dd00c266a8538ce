"""Where the laws of a file and of a folder go, and what is refused."""

from pathlib import Path

import pytest

from darklode.flows.jobs.fit_laws import fit_laws, open_grid, seed_of
from darklode.flows.runs import SETTINGS, output_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, CommandLineError
from darklode.pipeline.laws.points import POINTS_STAGE
from darklode.schemas.run_inputs import LawsInputs
from helpers.runs import read

FEW = "size,value\n10,3\n20,2.9\n40,2.8\n"


def test_a_file_goes_to_a_folder_which_can_be_fitted_again(tmp_path: Path) -> None:
    points = tmp_path / "points.csv"
    points.write_text(FEW)
    run = fit_laws(str(points), str(tmp_path / "laws"))
    assert [row["verdict"] for row in read(run, "law_verdicts")] == ["not identifiable yet"]
    points.write_text(FEW.replace("2.8", "3.1"))
    assert [row["value"] for row in read(fit_laws(run.store.url), "law_points")] == [3, 2.9, 2.8]
    again = fit_laws(str(points), run.store.url)
    assert [row["value"] for row in read(again, "law_points")] == [3, 2.9, 3.1]
    assert again.manifest(POINTS_STAGE) is not None


def test_a_file_needs_a_folder_and_a_folder_needs_points(tmp_path: Path) -> None:
    with pytest.raises(CommandLineError, match="--out"):
        fit_laws("points.csv")
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="no points"):
        open_grid(str(tmp_path))
    with pytest.raises(ArtifactError, match="holds file and no run"):
        output_run(str(tmp_path), LawsInputs)
    assert output_run(str(tmp_path / "new"), LawsInputs).manifests() == Run(str(tmp_path / "new")).manifests() == {}


def test_a_grids_resamples_have_its_own_seed_whoever_fits_it(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "laws"))
    assert seed_of(run) == 0
    run.store.write(SETTINGS, b"seed: 17")
    assert seed_of(run) == 17
