"""Arguments of the functions: settings by dotted name or nested, files, and repeated options."""

from pathlib import Path

from darklode.api.launching import changes_of, merge_nested, names_of
from darklode.flows.config import load_settings


def test_settings_are_what_the_command_line_would_make_of_them() -> None:
    values = {"judge.model": "m", "judge.base_url": "http://h/v1", "judge.kind": "llm"}
    assignments = [f"{name}={value}" for name, value in values.items()]
    assert load_settings(values=merge_nested(values)) == load_settings(assignments=assignments)


def test_options_do_not_drop_settings_of_the_same_section() -> None:
    overrides = {"evaluate": {"n_resamples": 50, "systems": ["bm25"]}, "evaluate.permutations": 60}
    merged = {"n_resamples": 50, "permutations": 60, "systems": ["ppmi"]}
    assert merge_nested(overrides, {"evaluate": {"systems": ["ppmi"]}}) == {"evaluate": merged}


def test_settings_override_the_file_and_options_override_both(tmp_path: Path) -> None:
    file = tmp_path / "darklode.yaml"
    file.write_text("pool: {depth: 10, search_depth: 90}\nseed: 3\n")
    changed = changes_of(file, {"pool.depth": 20, "seed": 4}, {"seed": 5})
    assert changed == {"pool": {"depth": 20, "search_depth": 90}, "seed": 5}


def test_one_value_is_a_list_of_one() -> None:
    assert names_of("bm25") == ["bm25"]
    assert names_of(Path("runs/first")) == ["runs/first"]
    assert names_of(("a", Path("b"))) == ["a", "b"]
    assert names_of(()) == []
