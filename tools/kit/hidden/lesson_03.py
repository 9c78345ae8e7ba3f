"""Hidden cases of lesson 03."""

import torch

from dspark_lite.course.exercises.lesson_03 import ended_round


def check_forget(generator):
    """Return blocks of one to sixteen, accepted to any place."""
    blocks = torch.randint(1, 17, (40,), generator=generator).tolist()
    return [[(gamma, int(torch.randint(gamma + 1, (), generator=generator))) for gamma in blocks]]


def check_still_unread(generator):
    """Return rounds of any length, whole ones and refused ones among them."""
    return [[ended_round(generator) for _ in range(40)]]
