"""How far raters agree: kappa of two, alpha of many, and the threshold at which a judge agrees best with people.

Judges and people are raters alike: calibration, the agreement of a panel and human validation take their figures here.
"""

from pipeline.raters.alpha import alpha
from pipeline.raters.kappa import Confusion, cohens_kappa, confusion, kappa_of_table
from pipeline.raters.threshold import MIN_LABELS, MIN_OF_EACH, cross_validated_kappa, enough, fit_threshold

__all__ = [
    "MIN_LABELS",
    "MIN_OF_EACH",
    "Confusion",
    "alpha",
    "cohens_kappa",
    "confusion",
    "cross_validated_kappa",
    "enough",
    "fit_threshold",
    "kappa_of_table",
]
