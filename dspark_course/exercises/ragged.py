"""A ragged batch by hand: the index tensors of a step and its mask, as lesson 11 asks for them."""

import torch


def index_tensors(starts, counts):
    """(request [N], position [N]) of a step's tokens."""
    request = torch.repeat_interleave(torch.arange(len(counts)), counts)
    return request, starts[request] + torch.cat([torch.arange(count) for count in counts])


def own(request, key_request):
    """Whether a key is of the token's request."""
    return request[:, None] == key_request


def before(position, key_position):
    """Whether a key is not after the token."""
    return key_position <= position[:, None]


def may_see(request, position, key_request, key_position):
    """Which keys [N, K] each token sees, bool."""
    return own(request, key_request) & before(position, key_position)
