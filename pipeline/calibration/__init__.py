"""The judge against human labels: how far they agree, and what its probabilities are worth."""

from pipeline.calibration.stage import CALIBRATE, MIN_LABELS, MIN_OF_EACH, calibrate, fitted_thresholds

__all__ = ["CALIBRATE", "MIN_LABELS", "MIN_OF_EACH", "calibrate", "fitted_thresholds"]
