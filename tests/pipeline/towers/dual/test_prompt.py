"""What decoders are asked: Darklode's own prompt, one's own, and what is none."""

from pathlib import Path

import pytest
import yaml

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.towers.dual.prompt import DecoderPrompt

OWN = {"version": 1, "title": "its query:", "content": "its query:", "all": "in one word:"}


def test_a_prompt_is_a_folder_and_each_word_of_it_counts(tmp_path: Path) -> None:
    (tmp_path / "prompt.yaml").write_text(yaml.safe_dump(OWN))
    own, default = DecoderPrompt.load(str(tmp_path)), DecoderPrompt.load("default")
    assert (own.title, own.all) == ("its query:", "in one word:")
    changed = own.model_copy(update={"all": "in one phrase:"})
    assert len({own.digest(), default.digest(), changed.digest()}) == 3
    (tmp_path / "prompt.yaml").write_text(yaml.safe_dump(OWN | {"title": ":", "content": ":", "all": ":"}))
    assert DecoderPrompt.load(str(tmp_path)).all == ":"


@pytest.mark.parametrize("lacking", ["title", "content", "all"])
def test_each_block_is_asked_something(lacking: str, tmp_path: Path) -> None:
    (tmp_path / "prompt.yaml").write_text(yaml.safe_dump(OWN | {lacking: ""}))
    with pytest.raises(SettingsError, match=f"prompt.yaml: .*\n{lacking}"):
        DecoderPrompt.load(str(tmp_path))
