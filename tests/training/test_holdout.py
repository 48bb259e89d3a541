"""What is chosen against the usual must be clearly better on the questions held out."""

from __future__ import annotations

import numpy as np

from glie.training.holdout import clearly_better


def test_a_gain_must_exceed_its_standard_error() -> None:
    scores = np.zeros(100)
    steady = scores + 0.01
    lucky = scores.copy()
    lucky[:3] = 1.0, 1.0, -1.0  # the same mean gain, from a few questions
    assert clearly_better(steady, scores)
    assert not clearly_better(lucky, scores)
    assert not clearly_better(scores, scores)
    assert not clearly_better(scores, steady)


def test_one_question_decides_by_itself() -> None:
    assert clearly_better(np.array([1.0]), np.array([0.5]))
    assert not clearly_better(np.array([0.5]), np.array([0.5]))
