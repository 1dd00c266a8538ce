"""The saved judge: `reranker/` with the calibration in its last layer, and `reranker.json` with threshold and bands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from darklode.pipeline.base.artifacts import Run, Tables, key_of
from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.models.local import RERANKER_FOLDER, RERANKER_RECORD
from darklode.pipeline.reranker.distil.evaluation import PREDICTIONS_STAGE
from darklode.pipeline.reranker.distil.sampling import TEST
from darklode.pipeline.reranker.distil.training import DISTILLED_JUDGE_STAGE, PairTexts, load_distilled
from darklode.pipeline.reranker.folder import RECORDS
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.release.adapter import weights_hash
from darklode.pipeline.train.release.folder import is_up_to_date, save_folder

if TYPE_CHECKING:
    from darklode.pipeline.reranker.distil.comparison import LogitCalibration
    from darklode.pipeline.reranker.model import InitialReranker

N_PROBES = 16
"""Test pairs that verify that the saved folder reproduces the calibrated scores."""

BANDS_SQL = "SELECT * EXCLUDE (tenant) FROM cascade_bands ORDER BY certainty"
SHOWN_BANDS_SQL = f"SELECT * EXCLUDE (fold_counts) FROM ({BANDS_SQL})"


def save_distilled(run: Run, source: Tables, initial: InitialReranker, teacher: list[str]) -> None:
    """Write `reranker/` unless it is up to date, and `reranker.json` beside it and in it.

    Args:
        run: a run with complete stages.
        source: the judged run, which has the texts.
        initial: the model that training started from.
        teacher: the teacher's judge ids.

    Raises:
        DarklodeError: the saved folder does not reproduce the scores, or the model has no single last layer.
    """
    from darklode.pipeline.reranker.distil.comparison import LogitCalibration

    manifests = [run.manifest(stage) for stage in (DISTILLED_JUDGE_STAGE, PREDICTIONS_STAGE)]
    mark = key_of([manifest.fingerprint for manifest in manifests if manifest], initial.identity)
    predictions = manifests[1]
    assert predictions is not None
    calibration, tables = LogitCalibration(**predictions.facts["calibration"]), run.tables()
    if not is_up_to_date(run.store, mark, RERANKER_FOLDER):
        _save_model(run, source, initial, calibration, mark)
    weights = weights_hash(run.store, RERANKER_FOLDER, RECORDS)
    record: dict[str, Any] = {
        "id": key_of(weights, predictions.fingerprint),
        "tenant": tables.sql("SELECT min(tenant) AS tenant FROM distilled_pairs")["tenant"][0].as_py(),
        "teacher": teacher,
        "threshold": round(calibration.threshold, 4),
        "calibrated on": predictions.facts["calibrated on"],
        "comparison": predictions.facts["comparison"],
        "bands": tables.sql(BANDS_SQL).to_pylist(),
        "base": initial.identity,
        "weights": weights,
    }
    data = json.dumps(record, indent=1, ensure_ascii=False).encode()
    run.store.write_changed(f"{RERANKER_FOLDER}/{RERANKER_RECORD}", data)
    run.store.write_changed(RERANKER_RECORD, data)


def _save_model(run: Run, source: Tables, initial: InitialReranker, calibration: LogitCalibration, mark: str) -> None:
    tables = run.tables()
    probes = PairTexts.of_part(tables, source, TEST)
    pairs = list(zip(probes.queries[:N_PROBES].to_pylist(), probes.texts[:N_PROBES].to_pylist(), strict=True))
    with deterministic(0):
        model = load_distilled(tables, initial)
        logit = model.scores([query for query, _ in pairs], [text for _, text in pairs])
        expected = calibration.slope * logit + calibration.intercept
        calibrate_head(model.loaded, calibration)

        def check(saved: Any) -> Any:
            from torch.nn import Identity

            return np.abs(saved.predict(pairs, activation_fn=Identity(), show_progress_bar=False) - expected)

        save_folder(run.store, mark, model.loaded.to("cpu"), check, {}, RERANKER_FOLDER, model_class="CrossEncoder")


def calibrate_head(cross_encoder: Any, calibration: LogitCalibration) -> None:
    """Apply slope and intercept to the last layer, so that the sigmoid of the score is the calibrated probability.

    Args:
        cross_encoder: a sentence-transformers `CrossEncoder`; changed in place.
        calibration: slope and intercept.

    Raises:
        DarklodeError: the model does not end in a linear layer with one output and a bias.
    """
    import torch
    from torch import nn

    layers = [module for module in cross_encoder.model.modules() if isinstance(module, nn.Linear)]
    head = layers[-1] if layers else None
    if head is None or head.out_features != 1 or head.bias is None:
        raise DarklodeError("the model does not end in a linear layer with one output and a bias; use another --base")
    with torch.no_grad():
        head.weight.mul_(calibration.slope)
        head.bias.mul_(calibration.slope).add_(calibration.intercept)
