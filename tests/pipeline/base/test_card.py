"""The parts of a dataset card: front matter, tables, and what is unlike the defaults."""

from dataclasses import replace

import pyarrow as pa
import pytest
import yaml

from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.base.card import changed_settings, document, name_of, software, to_markdown, with_front_matter
from darklode.schemas.settings import Settings


def test_a_cell_cannot_break_the_table() -> None:
    table = pa.table({"a": ["x|y\n<b>`z`"], "b": [1234.5], "c": pa.array([None], pa.int32()), "d": [0.1234]})
    assert to_markdown(table).splitlines()[2] == "| x\\|y &lt;b>'z' | 1,234.5 |  | 0.123 |"


def test_front_matter_is_yaml_whatever_it_holds_and_lists_the_files() -> None:
    text = with_front_matter("# body\n", {"pretty_name": "a: b ☃"}, {"triplets": {"train": "t/*.parquet"}, "none": {}})
    head, body = text.removeprefix("---\n").split("---\n")
    assert yaml.safe_load(head) == {
        "pretty_name": "a: b ☃",
        "configs": [{"config_name": "triplets", "data_files": [{"split": "train", "path": "t/*.parquet"}]}],
    }
    assert body == "# body\n"
    assert "configs" not in with_front_matter("", {"a": 1}, {})


def test_tables_without_rows_have_no_section() -> None:
    rows = pa.table({"n": [1]})
    text = document(
        ["# T"], [("Full", rows, "a note"), ("Empty", rows.slice(1), "unseen"), ("Bare", rows, "")], ["end"]
    )
    assert text == "# T\n\n## Full\n\na note\n\n| n |\n|---|\n| 1 |\n\n## Bare\n\n| n |\n|---|\n| 1 |\n\nend\n"


def test_only_settings_that_differ_are_named() -> None:
    assert changed_settings(Settings()) == "None."
    changed = Settings.model_validate({"seed": 4, "clean": {"language": None}, "pool": {"retrievers": ["a|b"]}})
    assert changed_settings(changed).splitlines() == [
        "- `seed`: `4` (default `13`)",
        "- `clean.language`: `None` (default `documents`)",
        "- `pool.retrievers`: `['a\\|b']` (default `[]`)",
    ]


@pytest.mark.parametrize(("given", "name"), [("", "run"), ("mine", "mine")])
def test_a_dataset_is_named_by_its_settings_or_its_folder(run: Run, given: str, name: str) -> None:
    assert name_of(run, Settings.model_validate({"card": {"name": given}})) == name


def test_software_is_listed_once_with_all_its_versions(run: Run) -> None:
    assert software(run) == "None yet."
    for stage in ("one", "two"):
        run.execute(run.plan(Stage(stage, 1, (), ()), {}), lambda _tables, _output: None)
    (two,) = (manifest for manifest in run.manifests().values() if manifest.stage == "two")
    older = replace(two, software=two.software | {"pyarrow": "1.0"})
    run.store.write("manifests/two.json", older.to_json())
    assert f"- pyarrow 1.0, {pa.__version__}" in software(run).splitlines()
