"""The command export: files are named, folders are not overwritten, labels are withheld."""

import json
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from helpers.commands import Call, SampleRun, one_line
from helpers.fake_hub import dataset_hub

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    ("form", "file"),
    [
        ("beir", "corpus.jsonl"),
        ("trec", "qrels.test.txt"),
        ("sentence-transformers", "train.parquet"),
        ("mteb", "test.parquet"),
        ("flagembedding", "train.jsonl"),
        ("tevatron", "corpus.jsonl"),
        ("msmarco", "triples.train.tsv"),
        ("devrev", "annotated_queries.parquet"),
    ],
)
def test_exports_are_written_and_named(call: Call, sample_run: SampleRun, tmp_path: Path, form: str, file: str) -> None:
    shown = call("export", sample_run.folder, "--format", form, "--to", tmp_path / "[bold]to")
    assert (shown.code, shown.err) == (0, "")
    paths = [Path(line) for line in shown.out.splitlines()]
    assert all(path.is_file() for path in paths)
    assert file in {path.name for path in paths}
    again = call("export", sample_run.folder, "--format", form, "--to", tmp_path / "[bold]to")
    assert again.code == 1
    assert again.err.startswith("error: ")


def test_labels_of_the_test_split_are_withheld(call: Call, sample_run: SampleRun, tmp_path: Path) -> None:
    form = ("--format", "beir", "--to", tmp_path / "public", "--withhold-test", tmp_path / "kept")
    shown = call("export", sample_run.folder, *form)
    assert (shown.code, shown.err) == (0, "")
    qrels = {Path(line).relative_to(tmp_path).as_posix() for line in shown.out.splitlines() if "qrels" in line}
    assert "kept/qrels/test.tsv" in qrels
    assert "public/qrels/train.tsv" in qrels
    assert not {"public/qrels/test.tsv", "kept/qrels/train.tsv"} & qrels


def test_an_unknown_export_format(call: Call, sample_run: SampleRun, tmp_path: Path) -> None:
    shown = call("export", sample_run.folder, "--format", "zip", "--to", tmp_path / "to")
    one_line(shown, "unknown export format 'zip'; the formats are beir, ", code=2)
    assert not (tmp_path / "to").exists()


def test_one_tenant_is_exported(call: Call, sample_run: SampleRun, tmp_path: Path) -> None:
    shown = call("export", sample_run.folder, "--format", "beir", "--to", tmp_path / "to", "--tenant", "default")
    assert (shown.code, shown.err) == (0, "")
    form = ("--format", "beir", "--to", tmp_path / "other", "--tenant", "defualt")
    one_line(call("export", sample_run.folder, *form), "has no tenant 'defualt'; it has 'default'")


@pytest.mark.parametrize("form", ["quepid", "search-relevance", "elastic-ranking-evaluation"])
def test_judgments_are_those_of_one_tenant(call: Call, sample_run: SampleRun, tmp_path: Path, form: str) -> None:
    options = ("export", sample_run.folder, "--format", form, "--to", tmp_path / "to")
    one_line(call(*options), r"the run has 2 tenants \(default, tern\); export one with --tenant NAME")
    shown = call(*options, "--tenant", "tern")
    assert (shown.code, shown.err) == (0, "")
    assert {Path(line).name.split(".")[1] for line in shown.out.splitlines()} == {"train", "validation", "test"}


def test_judgments_of_chunks_for_an_index(call: Call, sample_run: SampleRun, tmp_path: Path) -> None:
    form = ("--format", "elastic-ranking-evaluation", "--level", "chunk", "--index", "help", "--tenant", "tern")
    shown = call("export", sample_run.folder, *form, "--to", tmp_path / "to")
    assert (shown.code, shown.err) == (0, "")
    rated = json.loads((tmp_path / "to" / "rank_eval.test.json").read_text(encoding="utf-8"))["requests"][0]["ratings"]
    known = Run(str(sample_run.folder)).tables("chunks").read("chunks")["chunk_id"].to_pylist()
    assert {rating["_index"] for rating in rated} == {"help"}
    assert {rating["_id"] for rating in rated} <= set(known)
    other = ("--format", "beir", "--level", "chunk", "--to", tmp_path / "other")
    one_line(call("export", sample_run.folder, *other), "beir has no option --level; it belongs to elastic-ranking")


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_a_run_is_pushed_to_the_hub(
    call: Call, sample_run: SampleRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants", reason="huggingface_hub is not installed")
    with dataset_hub("hf_of_the_tests") as hub:
        monkeypatch.setenv("HF_TOKEN", "hf_of_the_tests")
        for name, value in {"ENDPOINT": hub.address, "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}.items():
            monkeypatch.setattr(constants, name, value)
        shown = call("export", sample_run.folder, "--push", "hf://acme/whole")
        assert (shown.code, shown.err, shown.out) == (0, "", f"{hub.address}/datasets/acme/whole\n")
        form = ("--format", "mteb", "--withhold-test", tmp_path / "kept", "--push", "hf://acme/public", "--public")
        shown = call("export", sample_run.folder, *form)
        assert (shown.code, shown.err) == (0, "")
    assert hub.private == {"acme/whole": True, "acme/public": False}
    tables = {path.split("/")[1] for path in hub.datasets["acme/whole"] if path != "README.md"}
    assert tables == {"chunks", "queries", "qrels", "triplets"}
    assert "default/train.parquet" in hub.datasets["acme/public"]
    assert "default/test.parquet" not in hub.datasets["acme/public"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "name --format and --to, or --push"),
        (("--format", "beir"), "name --format and --to, or --push"),
        (("--format", "beir", "--to", "unused", "--public"), "--public needs --push"),
        (
            ("--push", "hf://a/b", "--tenant", "tern"),
            "--to, --withhold-test, --tenant, --level and --index need --format",
        ),
    ],
)
def test_options_that_do_not_go_together(
    call: Call, sample_run: SampleRun, options: tuple[str, ...], message: str
) -> None:
    one_line(call("export", sample_run.folder, *options), message, code=2)
    one_line(call("export", sample_run.folder, "--push", "acme/labels"), "acme/labels is no dataset of the Hub")
