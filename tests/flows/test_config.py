"""Settings: the preset, then the file, then --set; what is wrong is said by key and value."""

import pickle
import re
import traceback
from pathlib import Path

import pytest
import yaml

from darklode.flows.config import load_settings, presets, recorded_settings, resolve
from darklode.pipeline.base.errors import SettingsError

LLM = ("judge.kind=llm", "judge.model=m", "judge.base_url=http://h/v1")


def settings_file(folder: Path, text: str) -> Path:
    file = folder / "settings.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads_and_names_its_retrievers(name: str) -> None:
    assert load_settings(name).pool.retrievers


def test_triplets_keep_more_queries_than_the_paper_and_differ_in_nothing_else() -> None:
    more, paper = load_settings("triplets"), load_settings("devrev").clean
    ours = load_settings().clean
    assert more == load_settings().model_copy(update={"clean": ours.model_copy(update={"max_per_cluster": 0})})
    assert (ours.min_percentile, ours.max_percentile, ours.language) == (5, 95, "documents")
    assert (paper.min_percentile, paper.max_percentile, paper.max_per_cluster) == (25, 75, 1)
    assert paper.language == "en"


def test_the_papers_adaptation_is_followed_to_the_letter() -> None:
    paper, ours = load_settings("devrev-paper"), load_settings()
    found = {
        "init": "base",
        "temperature": 0.1,
        "in_batch_negatives": False,
        "l2_to_base": 0.0,
        "refresh_steps": 200,
        "learning_rates": (5e-6,),
    }
    assert paper == ours.model_copy(update={"adapt": ours.adapt.model_copy(update=found)})
    assert (
        paper.adapt.temperature,
        paper.adapt.num_negatives,
        paper.adapt.negatives_per_step,
        paper.adapt.lora_rank,
    ) == (0.1, 16, 8, 32)


def test_the_embedded_preset_has_seven_retrievers_with_bm25_first() -> None:
    names = load_settings().pool.retrievers
    assert (len(set(names)), names[0]) == (7, "bm25")


def test_the_file_overrides_the_preset_and_set_overrides_the_file(tmp_path: Path) -> None:
    file = settings_file(tmp_path, "pool: {retrievers: [ppmi], depth: 70, budget: 99}\n")
    chosen = load_settings("embedded", file, ["pool.depth=80", "seed=1", "seed=2"])
    pool = chosen.pool
    assert (pool.retrievers, pool.depth, pool.budget, pool.search_depth, chosen.seed) == (("ppmi",), 80, 99, 420, 2)


@pytest.mark.parametrize(
    ("assignment", "section", "key", "value"),
    [
        ("clean.language=null", "clean", "language", None),
        ("clean.language=fr", "clean", "language", "fr"),
        ("clean.noise=false", "clean", "noise", False),
        ("clean.n_clusters=7", "clean", "n_clusters", 7),
        ("clean.n_clusters=auto", "clean", "n_clusters", "auto"),
        ("clean.min_percentile=12.5", "clean", "min_percentile", 12.5),
        ("pool.retrievers=[bm25, ppmi]", "pool", "retrievers", ("bm25", "ppmi")),
        (" pool.depth =3", "pool", "depth", 3),
        ("card.name=a=b", "card", "name", "a=b"),
        ("clean={language: fr}", "clean", "language", "fr"),
    ],
)
def test_a_value_is_yaml(assignment: str, section: str, key: str, value: object) -> None:
    assert getattr(getattr(load_settings(assignments=[assignment]), section), key) == value


@pytest.mark.parametrize(
    ("assignment", "key", "value"),
    [
        ("judge.extra_body.temperature=null", "extra_body", {"temperature": None}),
        ("judge.base_url=http://one:1/v1, http://two:2/v1", "base_url", ("http://one:1/v1", "http://two:2/v1")),
        ("judge.base_url=[https://one/v1]", "base_url", ("https://one/v1",)),
    ],
)
def test_a_kinds_own_key_comes_in_any_order(assignment: str, key: str, value: object) -> None:
    for order in ([assignment, *LLM], [*LLM, assignment]):
        chosen = load_settings(
            assignments=[one for one in order if one == assignment or not one.startswith(f"judge.{key}=")]
        )
        assert getattr(chosen.judge, key) == value


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (
            ["judge.batch_size=64"],
            "judge.batch_size is a setting of kind cross_encoder and fastembed_cross_encoder; judge.kind is embedded",
        ),
        ([*LLM, "judge.device=cpu"], "judge.device is a setting of kind cross_encoder; judge.kind is llm"),
        ([*LLM, "judge.promt=x"], "there is no setting judge.promt; did you mean judge.prompt?"),
        (["judge.promt=x"], "did you mean judge.prompt? It is one of kind llm."),
        (["judge.kind=lm"], "judge.kind: there is no kind 'lm'; did you mean llm?"),
        (["term_weighting.table=t.csv"], "term_weighting.table is a setting of kind table; term_weighting.kind is log"),
        (["encoders.e.model=m"], "encoders.e.kind: kind must be one of fastembed, openai, sentence_transformers"),
        (["encoders.e={kind: openai, model: m, device: cpu}"], "encoders.e.device is a setting of kind sentence_tr"),
        (
            ["judge.panel=[{kind: llm, model: m, base_url: h, strategy: full}]"],
            "there is no setting judge.panel.0.strategy",
        ),
        (
            ["judge.panel=[{kind: embedded, response_format: text}]"],
            "judge.panel.0.response_format is a setting of kind llm",
        ),
    ],
)
def test_a_key_of_another_kind_is_told_where_it_belongs(assignments: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        load_settings(assignments=assignments)


def test_another_kind_leaves_the_keys_of_the_one_before_behind(tmp_path: Path) -> None:
    file = settings_file(
        tmp_path, "judge: {kind: cross_encoder, model: m/x, batch_size: 7, human_labels: labels.csv}\n"
    )
    chosen = load_settings(config=file, assignments=["judge.kind=embedded"]).judge
    assert chosen.model_dump(exclude_unset=True) == {"kind": "embedded", "human_labels": str(tmp_path / "labels.csv")}
    with pytest.raises(SettingsError, match=r"judge: kind llm needs judge\.model"):
        load_settings(config=file, assignments=["judge.kind=llm", "judge.base_url=http://h/v1"])


def test_a_run_of_an_earlier_version_is_read() -> None:
    """Before kinds were apart, a run recorded the keys of all of them."""
    every = {"model": "m", "base_url": ["http://h/v1"], "response_format": "auto", "device": "auto", "batch_size": 32}
    planner = {"kind": "log", "refresh_days": 3, "table": None, "model": "", "base_url": "", "timeout": 60.0}
    judge = {"kind": "llm", "threshold": 0.4, **every, "panel": [{"kind": "embedded", **every}]}
    chosen = recorded_settings(yaml.safe_dump({"judge": judge, "term_weighting": planner, "seed": 5}).encode())
    assert chosen.judge.model_dump(exclude_unset=True) == {
        "kind": "llm",
        "threshold": 0.4,
        "model": "m",
        "base_url": ("http://h/v1",),
        "response_format": "auto",
        "panel": ({"kind": "embedded"},),
    }
    assert (chosen.term_weighting.refresh_days, chosen.seed) == (3, 5)
    with pytest.raises(SettingsError, match=r"there is no setting judge\.bse_url"):
        recorded_settings(b"judge: {bse_url: x}")


RECORDED = """
judge:
  kind: llm
  threshold: 0.5
  strategy: full
  human_labels: null
  panel:
  - kind: llm
    threshold: 0.5
    model: y
    base_url:
    - http://y/v1
    max_disagreement: 0.9
    max_attempts: 3
  vote: majority
  panel_weights: []
  model: x
  base_url:
  - http://x/v1
  extra_body: {}
  max_chunk_tokens: 2048
  max_disagreement: 0.9
  max_attempts: 3
"""
"""Of a run that was made when there was `judge.max_disagreement`."""


def test_a_run_that_recorded_a_setting_which_is_gone_is_read_and_a_file_with_it_is_told(tmp_path: Path) -> None:
    chosen = recorded_settings(RECORDED)
    (member,) = chosen.judge.panel
    assert (chosen.judge.model_dump()["max_attempts"], member.model_dump()["model"]) == (3, "y")
    with pytest.raises(
        SettingsError, match=r"judge\.max_disagreement was removed: the label that the model wrote is kept"
    ):
        load_settings(config=settings_file(tmp_path, RECORDED))


def test_settings_travel_to_another_process() -> None:
    chosen = load_settings(assignments=[*LLM, "judge.panel=[{kind: embedded}]", "term_weighting.refresh_days=3"])
    assert pickle.loads(pickle.dumps(chosen)) == chosen


def test_a_setting_three_levels_down() -> None:
    chosen = load_settings(assignments=["ingest.documents.columns.text=body"])
    assert chosen.ingest.documents.columns.text == "body"
    assert chosen.ingest.queries.columns.text is None


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("pool.deepth=3", "there is no setting pool.deepth; did you mean pool.depth?"),
        ("clean.langauge=en", "there is no setting clean.langauge; did you mean clean.language?"),
        ("clean.language.x=en", "there is no setting clean.language.x; did you mean clean.language?"),
        ("qqq=1", "there is no setting qqq; known are seed, "),
        ("pool.depth=0", "pool.depth: Input should be greater than 0 (got 0)"),
        ("pool.depth=many", "pool.depth: Input should be a valid integer"),
        ("pool.method=best", "pool.method: Input should be 'union' or 'rrf' (got 'best')"),
        ("clean.n_clusters=-2", "clean.n_clusters: Input should be 'auto' or Input should be greater than 0 (got -2)"),
        ("clean.min_percentile=.nan", "clean.min_percentile: "),
        ("pool.retrievers=[1]", "pool.retrievers: Input should be a valid string (got 1)"),
        ("chunk.overlap=900", "chunk: overlap 900 must be smaller than size 500"),
        ("clean.max_percentile=4", "clean: min_percentile 5 must be below max_percentile 4.0"),
        ("clean=3", "clean is a section; set clean.<key>"),
        ("ingest.documents=jsonl", "ingest.documents is a section; set ingest.documents.<key>"),
        ("clean.language", "--set takes section.key=value, not 'clean.language'"),
        ("=3", "--set takes section.key=value, not '=3'"),
        ("clean.language={a", "--set clean.language={a: the value is not YAML"),
        ("judge.kind=llm", "judge: kind llm needs judge.model, the name of the model"),
    ],
)
def test_a_wrong_assignment_is_named(assignment: str, message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        load_settings(assignments=[assignment])


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("judge.base_url=ftp://one", "judge.base_url: must be URLs such as http://127.0.0.1:8000/v1"),
        ("judge.spending_limit=3", "judge: spending_limit needs prompt_price_per_million"),
    ],
)
def test_a_wrong_value_of_a_kind_is_named(assignment: str, message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        load_settings(assignments=[*LLM, assignment])


@pytest.mark.parametrize(
    "url", ["http://me:s3cr,et@host/v1", "ftp://me:s3cr,et@host", "http://host/v1?key=s3cr,et", "me:s3cr,et@://"]
)
def test_an_address_with_a_password_or_a_key_is_refused_unseen(url: str) -> None:
    with pytest.raises(SettingsError, match=r"judge\.base_url: must") as caught:
        load_settings(assignments=["judge.kind=llm", "judge.model=m", f"judge.base_url=['{url}']"])
    assert "s3cr" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clean: [a", "is not YAML"),
        ("- clean", "must hold sections such as clean: and pool:"),
        ("0", "must hold sections such as clean: and pool:"),
        ("clean: 3", "clean is a section"),
        ("clean:", "clean is a section; set clean.<key> or leave it out"),
        ("1: 2", "there is no setting 1"),
        ("clean.language: fr", "clean.language: "),
        ("nothing: {}", "nothing: "),
        ("evaluate: {n_resample: 5}", "did you mean evaluate.n_resamples?"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        load_settings(config=settings_file(tmp_path, text))


def test_nested_values_leave_what_they_do_not_name_to_the_kind_that_they_choose(tmp_path: Path) -> None:
    """The embedded judge of the default preset has a threshold of its own, which no other kind inherits."""
    llm = {"kind": "llm", "model": "m", "base_url": "http://h/v1"}
    assert load_settings().judge.threshold == 0.33
    assert load_settings(values={"judge": llm}) == load_settings(assignments=LLM)
    assert load_settings(values={"judge": llm}).judge.threshold == 0.5
    assert load_settings("local", values={"judge": {"human_labels": "labels.csv"}}).judge.threshold == "fitted"
    file = settings_file(tmp_path, "judge: {threshold: 0.3}\n")
    assert load_settings(config=file, values={"judge": llm}).judge.threshold == 0.3
    assert load_settings(config=file, values={"judge": {"threshold": 0.4}}).judge.threshold == 0.4


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert load_settings(config=settings_file(tmp_path, "# all defaults\n")) == load_settings()


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing, binary = tmp_path / "missing.yaml", tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match=r"there is no settings file .*missing\.yaml"):
        load_settings(config=missing)
    with pytest.raises(SettingsError, match=r"binary\.yaml cannot be read"):
        load_settings(config=binary)
    with pytest.raises(SettingsError, match=r"cannot be read: .*directory"):
        load_settings(config=tmp_path)


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"there is no preset embeded; did you mean embedded\?"):
        load_settings("embeded")


def test_settings_come_back_from_their_own_yaml() -> None:
    chosen = load_settings(assignments=["clean.language=null", "pool.retrievers=[bm25]"])
    assert resolve(yaml.safe_load(yaml.safe_dump(chosen.model_dump(mode="json")))) == chosen


def test_paths_in_settings_are_those_of_their_file_or_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    file = tmp_path / "project" / "x.yaml"
    file.write_text("term_weighting: {kind: table, table: terms.csv}\nevaluate: {human_labels: people.csv}\n")
    monkeypatch.chdir(tmp_path)
    chosen = load_settings(config="project/x.yaml", assignments=["judge.human_labels=labels.csv"])
    monkeypatch.chdir("/")
    assert chosen.term_weighting.model_dump()["table"] == str(tmp_path / "project" / "terms.csv")
    assert chosen.evaluate.human_labels == str(tmp_path / "project" / "people.csv")
    assert chosen.judge.human_labels == str(tmp_path / "labels.csv")
    assert resolve(chosen.model_dump(mode="json")) == chosen


def test_all_wrong_settings_are_named_at_once() -> None:
    wrong = ["pool.depht=1", "pool.depth=-1", "clean.nope=2", "judge.kind=nobody", "judge.model=m", "seed=x"]
    with pytest.raises(SettingsError) as failed:
        load_settings(assignments=wrong)
    said = [message.partition(":")[0].partition(";")[0] for message in failed.value.each]
    unknown = ["there is no setting pool.depht", "there is no setting clean.nope", "judge.kind"]
    assert sorted(said) == sorted([*unknown, "pool.depth", "seed"])
    with pytest.raises(SettingsError) as failed:
        load_settings(assignments=["depth=3", "pool.depth=-1"])
    assert [message.partition(";")[0].partition(":")[0] for message in failed.value.each] == [
        "there is no setting depth",
        "pool.depth",
    ]
    with pytest.raises(SettingsError) as failed:
        load_settings(assignments=["pool.depth", "clean.noise=[", "seed=1"])
    assert len(failed.value.each) == 2
