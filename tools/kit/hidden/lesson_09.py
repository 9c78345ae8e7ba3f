"""Hidden cases of lesson 09."""

import numpy as np
import torch
from scipy.special import expit

from dspark_lite.course.exercises.lesson_09 import small_draft
from dspark_lite.scheduling.calibration import ece, survived


def check_survival(generator):
    """Return blocks of two to seven drafts of other heads."""
    cases = []
    for _ in range(10):
        gamma = int(torch.randint(2, 8, (), generator=generator))
        drafts = torch.randint(6, (gamma,), generator=generator).tolist()
        cases.append(
            (
                small_draft(generator),
                torch.randn(gamma, 4, generator=generator),
                int(torch.randint(6, (), generator=generator)),
                drafts,
            )
        )
    return [cases]


def check_ece(generator):
    """Return three to ten bins."""
    sizes = torch.randint(3, 11, (20,), generator=generator).tolist()
    return [
        [
            (
                *torch.rand(2, size, generator=generator).double().numpy(),
                torch.randint(1, 200, (size,), generator=generator).numpy(),
            )
            for size in sizes
        ]
    ]


def check_sequential(generator):
    """Return two heads of three positions, each too sure or too unsure by a factor of its own."""
    cases = []
    for _ in range(2):
        rng = np.random.default_rng(int(torch.randint(10**6, (), generator=generator)))
        right = rng.normal(1.0, 1.6, (2000, 3))
        fell = rng.random(right.shape) >= expit(right)
        accepted = np.where(fell.any(1), fell.argmax(1), 3)
        cases.append(
            (
                right * rng.choice([0.4, 0.6, 1.7, 2.5], 3),
                survived(accepted, 3),
                np.geomspace(0.25, 4, 9),
                ece,
            )
        )
    return [cases]
