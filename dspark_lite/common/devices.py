"""The device that a caller names."""

import torch

from .errors import RequestError


def named_device(name) -> torch.device:
    """Return the device of a name ("cpu", "cuda", "cuda:1") or a torch.device. Other accelerators
    that torch has been told of pass, untried.

    Raise RequestError for "mps", "meta" and what is no device, and for a GPU that torch does not
    find.
    """
    try:
        device = torch.device(name)
        known = device.type not in ("mps", "meta")
    except (RuntimeError, TypeError):
        known = False
    if not known:
        raise RequestError(
            f"the device is {str(name)!r}; it must be cpu or cuda"
            + ', and on a Mac it is "cpu"' * (str(name) == "mps")
        )
    if device.type == "cuda" and not (
        torch.cuda.is_available()
        and (device.index is None or device.index < torch.cuda.device_count())
    ):
        raise RequestError(
            f"the device is {str(name)!r}, and torch finds no such GPU; leave it out, or give cpu"
        )
    return device
