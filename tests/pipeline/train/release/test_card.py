"""The card says what was decided, and on whose licence."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.release.card import card, format_headroom, licence
from darklode.pipeline.train.release.folder import save
from darklode.pipeline.train.release.headroom import detectable
from helpers.adapted import model_in

from ..conftest import Adapted


@pytest.mark.slow
def test_the_card_tells_verdict_intervals_trials_and_licence(adapted: Adapted, tmp_path: Path) -> None:
    run = Run(str(shutil.copytree(Path(adapted.out.store.url), tmp_path / "out")))
    encoder = model_in(adapted.root)
    (adapted.root / "model" / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A model\n")
    save(run, adapted.base, encoder, adapted.settings.adapt)
    page = card(run, adapted.settings, encoder, ["runs/<first>"]).decode()
    assert page.startswith("---\nlibrary_name: sentence-transformers\nlicense: apache-2.0\n---\n")
    assert "**base**: " in page
    assert (
        "72 parameters, selected by cross-validation, 5 folds of clusters, on 51 train and validation queries" in page
    )
    assert "were ranked once" in page
    assert "| own positive | adapted | base | nDCG@10 |" in page
    assert "In hybrid search, against BM25 + base" in page
    assert "runs/&lt;first>" in page
    assert "0.0003 | 0.25 |" in page


@pytest.mark.slow
def test_the_headroom_in_a_sentence(adapted: Adapted) -> None:
    assert format_headroom(adapted.out) == (
        "16 test, 39 train, 12 validation; 39 labelled train clusters. 15 test queries in 15 clusters decide: a lift "
        "of about 0.303 or more is released 4 times of 5."
    )


def test_queries_of_too_few_clusters_decide_nothing(adapted: Adapted, tmp_path: Path) -> None:
    run = Run(str(shutil.copytree(Path(adapted.out.store.url), tmp_path / "out")))
    manifest = run.manifests()["headroom"]
    sides = manifest.facts["sides"] | {"test": {"queries": 45, "clusters": 10, "own": 40, "own_clusters": 9}}
    facts = manifest.facts | {"sides": sides, "deciding": 40, "detectable": detectable(9)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "manifest", lambda *_: replace(manifest, facts=facts))
        assert format_headroom(run).endswith(
            ". Too few clusters to decide: the 40 test queries that share no positive with training are in 9 clusters, "
            "at least 10 are needed; label test queries of other clusters."
        )


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("---\nlicense: mit\n---\n# Model\n", "mit"),
        ("---\nlanguage: en\n---\n", "unknown"),
        ("# Model\n---\nlicense: mit\n---\n", "unknown"),
        ("# Model\n", "unknown"),
        ("", "unknown"),
        ("---\nlicense: [\n---\n", "unknown"),
    ],
)
def test_the_licence_is_that_of_the_front_matter_of_the_model(tmp_path: Path, page: str, expected: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / "README.md").write_text(page)
    assert licence(SentenceTransformersSettings(model=str(tmp_path))) == expected
