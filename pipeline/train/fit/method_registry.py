"""Choose and create the adaptation method; its module is imported on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from darklode.pipeline.train.fit.requirements import INSTALL_COMMAND, missing_packages
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


def choose_method(settings: AdaptSettings, tables: Tables) -> tuple[AdaptSettings, str]:
    """The settings with a method, if it is `auto`, and with a number of steps; and why, empty if it was set.

    Training the whole encoder gains more than a head, if there are enough validation queries to select the step: with
    fewer than `MIN_VALIDATION`, cross-validation would train the encoder six times on few labels.

    Args:
        settings: settings of the adaptation.
        tables: `adaptation_queries`.
    """
    from darklode.pipeline.train.fit.model_selection import MIN_VALIDATION

    (counts,) = tables.sql(COUNTS_SQL).to_pylist()
    if settings.method != "auto":
        return settings.with_method(settings.method, counts["n_train"]), ""
    linear, queries = "Training a linear head (adapt.method)", "validation queries share no positive with training"
    if settings.init == "term_vectors":
        method, reason = "linear", f"{linear}: only heads start from term vectors."
    elif counts["n_validation"] < MIN_VALIDATION:
        method, reason = "linear", f"{linear}: only {counts['n_validation']} {queries}, fewer than {MIN_VALIDATION}."
    elif missing := missing_packages("full"):
        method = "linear"
        reason = f"{linear}: the whole encoder usually gains more, but needs {' and '.join(missing)}: {INSTALL_COMMAND}"
    else:
        method = "full"
        reason = f"Training the whole query encoder (adapt.method full): {counts['n_validation']} {queries}."
    return settings.with_method(method, counts["n_train"]), reason


def create_method(settings: AdaptSettings, base: BaseEncoder) -> Method:
    """The configured method, which is not `auto`."""
    assert settings.method != "auto", "see choose_method"
    from darklode.pipeline.train.fit.head_methods import ClosedFormMethod, HeadMethod, WhiteningMethod

    if settings.method in HEADS:
        kinds = {"closed_form": ClosedFormMethod, "whitened": WhiteningMethod}
        return kinds.get(settings.method, HeadMethod)(settings, base)
    from darklode.pipeline.train.fit.encoder_methods import EncoderMethod

    return EncoderMethod(settings, base)
