"""Choose and create the adaptation method; its module is imported on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from darklode.schemas.adaptation import HEADS, AdaptSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.fit.methods import Method


COUNTS_SQL = """
    SELECT count(*) FILTER (split = 'validation' AND NOT shares_positive) AS n_validation,
           count(*) FILTER (split = 'train') AS n_train
    FROM adaptation_queries
"""


def choose_method(settings: AdaptSettings, tables: Tables) -> AdaptSettings:
    """The settings with a method, if it is `auto`, and with a number of steps.

    Training the whole encoder gains more than a head, if there are enough validation queries to select the step: with
    fewer than `MIN_VALIDATION`, cross-validation would train the encoder six times on few labels.

    Args:
        settings: settings of the adaptation.
        tables: `adaptation_queries`.
    """
    from darklode.pipeline.train.fit.model_selection import MIN_VALIDATION

    (counts,) = tables.sql(COUNTS_SQL).to_pylist()
    method = settings.method
    if method == "auto":
        has_validation = counts["n_validation"] >= MIN_VALIDATION
        method = "full" if has_validation and settings.init != "term_vectors" else "linear"
    return settings.with_method(method, counts["n_train"])


def create_method(settings: AdaptSettings, base: BaseEncoder) -> Method:
    """The configured method, which is not `auto`."""
    assert settings.method != "auto", "see choose_method"
    from darklode.pipeline.train.fit.head_methods import ClosedFormMethod, HeadMethod, WhiteningMethod

    if settings.method in HEADS:
        kinds = {"closed_form": ClosedFormMethod, "whitened": WhiteningMethod}
        return kinds.get(settings.method, HeadMethod)(settings, base)
    from darklode.pipeline.train.fit.encoder_methods import EncoderMethod

    return EncoderMethod(settings, base)
