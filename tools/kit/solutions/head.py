"""A head that sees two tokens: the transition bias of the token before, moved by the one before
that."""

from torch import nn


class Head(nn.Module):
    """W2 (W1[x_(k-1)] + U1[x_(k-2)]); at the first position there is no x_(k-2), and its part is
    0."""

    def __init__(self, vocab_size, rank, hidden_size):
        super().__init__()
        self.last, self.before = nn.Embedding(vocab_size, rank), nn.Embedding(vocab_size, rank)
        self.out = nn.Linear(rank, vocab_size, bias=False)

    def begin(self, hidden):
        """Return the part of the token before the last, [..., r]."""
        return hidden.new_zeros(*hidden.shape[:-2], self.out.in_features)

    def step(self, previous, hidden, state):
        """Return the bias [..., V] after `previous` [...], and the state for the next position."""
        return self.out(self.last(previous) + state), self.before(previous)
