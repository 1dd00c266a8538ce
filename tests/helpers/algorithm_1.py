"""Algorithm 1 of ScalingNote as the paper prints it, pair by pair: what the joins are tested against and compared with.

And the guarded rule in the same way.

`Planner(q)` is a dictionary of float32 importances by term. Where the paper is silent: equal scores go by term, queries
with fewer terms use those they have, none associates with nothing, and thresholds are float32 as importances are.
"""

from collections.abc import Mapping
from itertools import combinations, permutations

import numpy as np

Scores = Mapping[str, np.float32]
Found = dict[tuple[str, str, str], tuple[tuple[str, ...], np.float32]]


def top(count: int, scores: Scores) -> list[str]:
    """Top2 and Top4: the best terms, best first."""
    return sorted(scores, key=lambda term: (-scores[term], term.encode()))[:count]


def all_above(terms: list[str], scores: Scores, threshold: float) -> bool:
    """Whether there are terms, and `scores` has each above the threshold."""
    return bool(terms) and all(term in scores and scores[term] > np.float32(threshold) for term in terms)


def guarded(scores: Scores, share: float = 0.5) -> list[str]:
    """The terms asked for by the guarded rule: the best two where they make half of the importance, else three.

    Never is one of two equals asked for without the other; none where three would not do.
    """
    best = top(len(scores), scores)
    parts = [round(float(scores[term]) * 10**6) for term in best]
    for size in range(min(2, len(best)), min(3, len(best)) + 1):
        tied = size < len(best) and scores[best[size]] == scores[best[size - 1]]
        if size == len(best) or (not tied and (size == 3 or sum(parts[:size]) >= share * sum(parts))):
            return best[:size]
    return []


def guarded_match(scores_1: Scores, scores_2: Scores, th_click: float) -> bool:
    """ClickA(q1←q2) by the guarded rule: one term is asked for only of a lender without another strong one."""
    terms = guarded(scores_1)
    alone = len(terms) > 1 or sum(score > np.float32(th_click) for score in scores_2.values()) == 1
    return all_above(terms, scores_2, th_click) and alone


def match(scores_1: Scores, scores_2: Scores, th_click: float, th_rel: float) -> tuple[bool, bool, bool]:
    """ClickA(q1←q2), ClickA(q2←q1) and RelA(q1, q2)."""
    click_1 = all_above(top(2, scores_1), scores_2, th_click)
    click_2 = all_above(top(2, scores_2), scores_1, th_click)
    top_1, top_2 = top(4, scores_1), top(4, scores_2)
    relevance = all_above(top_1, scores_2, th_rel) and all_above(top_2, scores_1, th_rel)
    return click_1, click_2, relevance


def guarded_clicks(planned: Mapping[str, Scores], th_click: float) -> Found:
    """One tenant's click associations by the guarded rule, by a loop over all pairs."""
    return {
        (one, other, "click"): _matched(guarded(scores_1), scores_2)
        for (one, scores_1), (other, scores_2) in permutations(planned.items(), 2)
        if guarded_match(scores_1, scores_2, th_click)
    }


def associations(planned: Mapping[str, Scores], th_click: float, th_rel: float) -> Found:
    """One tenant's (query, lender, kind) → matched terms and score, by a loop over all pairs."""
    found: Found = {}
    for (one, scores_1), (other, scores_2) in combinations(planned.items(), 2):
        click_1, click_2, relevance = match(scores_1, scores_2, th_click, th_rel)
        if click_1:
            found[one, other, "click"] = _matched(top(2, scores_1), scores_2)
        if click_2:
            found[other, one, "click"] = _matched(top(2, scores_2), scores_1)
        if relevance:
            (terms_1, least_1), (terms_2, least_2) = (
                _matched(top(4, scores_1), scores_2),
                _matched(top(4, scores_2), scores_1),
            )
            found[one, other, "relevance"] = terms_1, min(least_1, least_2)
            found[other, one, "relevance"] = terms_2, min(least_1, least_2)
    return found


def _matched(terms: list[str], lender: Scores) -> tuple[tuple[str, ...], np.float32]:
    return tuple(terms), min(lender[term] for term in terms)
