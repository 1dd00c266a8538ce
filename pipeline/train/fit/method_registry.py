"""Create the configured adaptation method; its module is imported on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from darklode.schemas.adaptation import HEADS, AdaptSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.fit.methods import Method


def create_method(settings: AdaptSettings, base: BaseEncoder) -> Method:
    """The configured method."""
    from darklode.pipeline.train.fit.head_methods import ClosedFormMethod, HeadMethod, WhiteningMethod

    if settings.method in HEADS:
        kinds = {"closed_form": ClosedFormMethod, "whitened": WhiteningMethod}
        return kinds.get(settings.method, HeadMethod)(settings, base)
    from darklode.pipeline.train.fit.encoder_methods import EncoderMethod

    return EncoderMethod(settings, base)
