"""The card says what was decided, and on whose licence."""

import shutil
from pathlib import Path

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.train.card import card, headroom_told
from darklode.pipeline.train.folder import save
from helpers.adapted import model_in

from .conftest import Adapted


def test_the_card_tells_verdict_intervals_trials_and_licence(adapted: Adapted, tmp_path: Path) -> None:
    run = Run(str(shutil.copytree(Path(adapted.out.store.url), tmp_path / "out")))
    encoder = model_in(adapted.root)
    (adapted.root / "model" / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A model\n")
    save(run, adapted.base, encoder, adapted.settings.adapt)
    page = card(run, adapted.settings, encoder, ["runs/<first>"]).decode()
    assert page.startswith("---\nlibrary_name: sentence-transformers\nlicense: apache-2.0\n---\n")
    assert "**base**: " in page
    assert "72 numbers, chosen by cross-validation, 5 folds of clusters, on 51 train and validation queries" in page
    assert "were asked once" in page
    assert "| own positive | nDCG@10 |" in page
    assert "runs/&lt;first>" in page
    assert "0.0003 | 0.25 |" in page


def test_the_headroom_in_a_sentence(adapted: Adapted) -> None:
    assert headroom_told(adapted.out) == (
        "16 test, 39 train, 12 validation; 39 labelled train clusters. 15 test queries decide, and can show "
        "differences from about 0.303 up."
    )
