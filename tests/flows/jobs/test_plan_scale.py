"""The file of machines: what is wrong in it is named, all of it."""

from pathlib import Path

import pytest

from darklode.flows.jobs.plan_scale import read_hardware
from darklode.pipeline.base.errors import SettingsError
from helpers.unit_costs import hardware_file


def test_numbers_may_be_written_with_an_exponent(tmp_path: Path) -> None:
    found = read_hardware(hardware_file(tmp_path, prices={"prompt_tokens": "5e-2"}))
    assert (found.machines.count, found.prices.prompt_tokens, found.work.tenants) == (10, 0.05, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("machines: [", "is not YAML"),
        ("", "the file: "),
        ("machines: {count: 1, cores: 0, memory_gb: 4}\ncolour: red\n", "machines.cores: .*; colour: "),
        ("machines: {count: 1, cores: 1}\n", "machines.memory_gb: Field required; docs/guides/plan-scale.md"),
        ("machines: {count: 1, cores: 1, memory_gb: 4}\nwork: {judged: 2}\n", "work.judged: "),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "hardware.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=said):
        read_hardware(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        read_hardware(tmp_path / "nothing.yaml")
