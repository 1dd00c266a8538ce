"""docker-compose.yml: by the compose specification, pinned, closed to the outside, and without a secret."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from darklode.flows.config import load_settings, project
from helpers.compose_file import compose, example, variables
from helpers.runs import REPOSITORY

SECRETS = {"POSTGRES_PASSWORD", "JUDGE_API_KEY"}
NAMES = set("postgres server pool deploy worker judge embeddings train-pool train".split())
FILLED = example() | dict.fromkeys(SECRETS, "0123abcd")
SERVICES: dict[str, dict[str, Any]] = compose(FILLED)["services"]


def test_it_keeps_to_the_compose_specification() -> None:
    specification = pytest.importorskip("compose_spec", reason="reads compose files strictly")
    content = compose(FILLED)
    parsed = specification.PyCompose.from_json(json.dumps(content))
    assert (
        set(parsed.service_names())
        == set(SERVICES)
        == {*"postgres server pool deploy worker judge embeddings train-pool train".split()}
    )
    for place, key in ((("judge",), "imagee"), (("judge", "healthcheck"), "intervall"), (("judge", "deploy"), "gpus")):
        broken = json.loads(json.dumps(content))
        target = broken["services"]
        for name in place:
            target = target[name]
        target[key] = "1s"
        with pytest.raises(ValueError, match=key):
            specification.PyCompose.from_json(json.dumps(broken))


def test_what_must_be_set_is_said_and_nothing_secret_has_a_default() -> None:
    assert variables(required=True) == SECRETS
    assert variables(required=True) | variables(required=False) == set(example())
    assert {name for name in (*SECRETS, "HF_TOKEN") if example()[name]} == set()
    for missing in SECRETS:
        with pytest.raises(KeyError, match=missing):
            compose({name: value for name, value in FILLED.items() if name != missing})
    defaults = compose(dict.fromkeys(SECRETS, "0123abcd"))
    assert defaults == compose(FILLED), ".env.example shows the defaults"


def test_the_env_file_is_not_committed() -> None:
    assert ".env" in (REPOSITORY / ".gitignore").read_text().splitlines()
    listed = subprocess.run(["git", "ls-files", ".env"], cwd=REPOSITORY, capture_output=True, check=False, text=True)
    assert listed.stdout == ""


def test_every_image_is_pinned() -> None:
    images = {service["image"] for service in SERVICES.values()}
    built = {line.removeprefix("FROM ") for line in inline().splitlines() if line.startswith("FROM ")}
    for image in images | built:
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+[\w.-]*", image), image
    version = re.search(r'^version = "(.*)"$', (REPOSITORY / "pyproject.toml").read_text(), re.M)
    assert version
    assert SERVICES["worker"]["image"] == f"darklode:{version[1]}"


def inline() -> str:
    found: str = SERVICES["worker"]["build"]["dockerfile_inline"]
    return found


def test_what_the_image_copies_is_there() -> None:
    copied = [line.split()[1:-1] for line in inline().splitlines() if line.startswith("COPY ")]
    names = [name for line in copied for name in line]
    assert "flows" in names
    assert [name for name in names if not (REPOSITORY / name).exists()] == []


def test_ports_are_published_on_loopback_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == len({port.split(":")[1] for port in ports}) == 3
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []
    assert "ports" not in SERVICES["postgres"]


def test_what_lasts_lies_in_declared_volumes() -> None:
    mounts = [mount.split(":") for service in SERVICES.values() for mount in service.get("volumes", [])]
    named = {mount[0] for mount in mounts if not mount[0].startswith(".")}
    assert named == set(compose(FILLED)["volumes"])
    assert ["./data/sample", "/documents", "ro"] in mounts
    assert SERVICES["worker"]["environment"]["XDG_CACHE_HOME"].startswith("/artifacts/")


def test_services_wait_for_what_they_need() -> None:
    waits = {name: service["depends_on"] for name, service in SERVICES.items() if "depends_on" in service}
    for name, needed in waits.items():
        for other, how in needed.items():
            once = "restart" not in SERVICES[other]
            assert how["condition"] == ("service_completed_successfully" if once else "service_healthy"), name
            assert once or "healthcheck" in SERVICES[other]
    assert {name: list(needed) for name, needed in waits.items()} == {
        "server": ["postgres"],
        "pool": ["server"],
        "deploy": ["pool"],
        "worker": ["deploy", "judge"],
        "train-pool": ["server"],
        "train": ["train-pool"],
    }


def test_a_run_by_default_is_judged_by_the_gpu_that_was_started_and_lies_on_the_volume(tmp_path: Path) -> None:
    file = tmp_path / "darklode.yaml"
    file.write_text(compose(FILLED)["configs"]["darklode"]["content"])
    given = project(file)
    settings = load_settings(given.preset, file)
    assert (settings.judge.kind, settings.judge.base_url) == ("llm", ("http://judge:8000/v1",))
    assert (settings.judge.model, settings.judge.key_env) == (FILLED["JUDGE_MODEL"], "JUDGE_API_KEY")
    assert {given.paths[name] for name in ("docs", "queries", "logs")} == {"/documents"}
    assert all(given.paths[name].startswith("/artifacts/") for name in ("out", "mined"))
    mounted = [{"source": "darklode", "target": "/darklode.yaml"}]
    assert SERVICES["deploy"]["configs"] == SERVICES["worker"]["configs"] == mounted
    assert SERVICES["deploy"]["command"][:4] == ["darklode", "deploy", "--config", "/darklode.yaml"]
    assert SERVICES["worker"]["environment"]["JUDGE_API_KEY"] == FILLED["JUDGE_API_KEY"]


def test_a_worker_with_a_gpu_waits_for_trainers() -> None:
    train, pool = SERVICES["train"], SERVICES["train-pool"]
    assert (train["profiles"], pool["profiles"]) == (["train"], ["train"])
    assert train["command"][-2:] == ["--pool", pool["command"][-1]] == ["--pool", "gpu"]
    (device,) = train["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert "artifacts:/artifacts" in train["volumes"]


def test_the_judge_caches_prefixes_and_holds_to_its_output() -> None:
    judge, embeddings = SERVICES["judge"], SERVICES["embeddings"]
    flags = dict(flag.removeprefix("--").partition("=")[::2] for flag in judge["command"])
    assert {"enable-prefix-caching", "enable-prompt-tokens-details"} <= flags.keys()
    assert json.loads(flags["structured-outputs-config"]) == {"backend": "xgrammar", "disable_any_whitespace": True}
    assert flags["model"] == FILLED["JUDGE_MODEL"]
    for service in (judge, embeddings):
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
        assert "/health" in service["healthcheck"]["test"][-1]
        assert service["environment"]["VLLM_API_KEY"] == FILLED["JUDGE_API_KEY"]
    assert embeddings["profiles"] == ["embeddings"]
    assert [name for name, service in SERVICES.items() if "profiles" not in service] == list(SERVICES)[:6]


def test_a_secret_reaches_only_who_needs_it() -> None:
    content = compose(dict.fromkeys(SECRETS, "SECRET") | {"HF_TOKEN": "TOKEN"})["services"]
    holders = {name for name, service in content.items() if "SECRET" in json.dumps(service)}
    assert holders == {"postgres", "server", "worker", "judge", "embeddings"}
    assert {
        name for name, service in content.items() if "TOKEN" in json.dumps(list(service["environment"].values()))
    } == {
        "judge",
        "embeddings",
        "train",
    }
    for service in content.values():
        assert "SECRET" not in json.dumps([service.get(part) for part in ("command", "healthcheck", "build")])
