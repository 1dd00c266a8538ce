"""swap-model on a whole run: what is up to date, and what is refused."""

from pathlib import Path

import pytest

from darklode.flows.jobs.swap_model import swap_model
from darklode.pipeline.base.errors import ArtifactError, SettingsError
from helpers.adapted import build_to_adapt
from helpers.swapped import swapped_run
from helpers.tiny_bert import tiny_bert


@pytest.mark.slow
def test_a_second_run_changes_nothing_and_another_share_fits_nothing_again(tmp_path: Path) -> None:
    swapped = swapped_run(tmp_path)
    fitted = (tmp_path / "out" / "manifests" / "swap_trials.json").read_bytes()
    card = (tmp_path / "out" / "README.md").read_bytes()
    assert swapped.swap(min_share=0.0) == swapped.sentence
    assert (tmp_path / "out" / "README.md").read_bytes() == card
    assert "asked for: 0.001" in swapped.swap(min_share=0.001)
    assert (tmp_path / "out" / "manifests" / "swap_trials.json").read_bytes() == fitted


def test_what_cannot_be_swapped_is_refused(tmp_path: Path) -> None:
    build_to_adapt(tmp_path / "run")
    old, out = str(tiny_bert(tmp_path / "old")), str(tmp_path / "out")
    run = str(tmp_path / "run")
    with pytest.raises(SettingsError, match="are the same encoder"):
        swap_model(run, old, old, out)
    endpoint = {"encoders": {"remote": {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}}}
    with pytest.raises(SettingsError, match="is of kind openai"):
        swap_model(run, "remote", old, out, endpoint)
    with pytest.raises(SettingsError, match="min_share 95: must be between 0 and 1"):
        swap_model(run, "remote", old, out, min_share=95)
    with pytest.raises(SettingsError, match="sample 0: must be at least 100"):
        swap_model(run, "remote", old, out, sample=0)
    new = str(tiny_bert(tmp_path / "new", hidden_size=12))
    with pytest.raises(ArtifactError, match="only 4 queries can be held out to select a map, at least 10 are needed"):
        swap_model(run, new, old, out)
