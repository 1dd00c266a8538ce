"""The judge against human labels: how far they agree, and what its probabilities are worth."""

from pipeline.calibration.stage import CALIBRATE, calibrate, fitted_thresholds

__all__ = ["CALIBRATE", "calibrate", "fitted_thresholds"]
