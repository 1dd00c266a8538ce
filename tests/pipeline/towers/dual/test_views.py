"""Which tokens are the title's and which the content's, and that a document is read as the served tower reads it."""

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from darklode.pipeline.towers.dual.views import document_features, mean_of
from helpers.tiny_bert import tiny_bert


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformer:
    return SentenceTransformer(str(tiny_bert(Path(tmp_path_factory.mktemp("views")) / "model")), device="cpu")


def test_tokens_are_shared_out_between_title_and_content(tower: SentenceTransformer) -> None:
    titles, contents = ["ab cd", None, "ef", None], ["gh", "ij kl", None, None]
    found = document_features(tower, titles, contents, " p: ")
    read = tower.preprocess(["p: ab cd\ngh", "p: ij kl", "p: ef", "p: "])
    assert torch.equal(found["input_ids"], read["input_ids"])
    assert torch.equal(found["attention_mask"], read["attention_mask"])

    def said(name: str) -> list[str]:
        rows = zip(found["input_ids"], found[name].bool(), strict=True)
        return ["".join(tower.tokenizer.convert_ids_to_tokens(ids[mask])).replace("#", "") for ids, mask in rows]

    assert said("title_mask") == ["abcd", "", "ef", ""]
    assert said("content_mask") == ["gh", "ijkl", "", ""]


def test_what_is_cut_off_is_in_no_view(tower: SentenceTransformer) -> None:
    found = document_features(tower, ["ab " * 99 + "ab"], ["b"], "")
    assert found["input_ids"].shape[1] == tower.max_seq_length
    assert found["title_mask"].any()
    assert not found["content_mask"].any()


def test_the_mean_is_of_the_named_tokens() -> None:
    tokens = torch.arange(12.0).reshape(2, 3, 2)
    found = mean_of(tokens, torch.tensor([[0, 1, 1], [0, 0, 0]]))
    assert found.tolist() == [[3.0, 4.0], [0.0, 0.0]]
