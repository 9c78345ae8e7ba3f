"""The two small heads on top of the backbone: the sequential head that follows the tokens drawn so far, and confidence.

Paper, sections 3.1 (sequential heads) and 3.2.1 (confidence). Shapes: B rows, H hidden size, r Markov rank, V vocabulary.
"""

import torch
from torch import nn


class MarkovHead(nn.Module):
    """The transition bias W2 W1[x] of the previous token x: a V x V bigram table of rank r.

    With a reduced vocabulary the next token is one of `outputs` and the table V x outputs.
    """

    def __init__(self, vocab_size: int, rank: int, hidden_size: int, outputs: int | None = None):
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, outputs or vocab_size, bias=False)

    def begin(self, hidden: torch.Tensor):
        """State before the first position of a block of hidden states [..., g, H]; the Markov head has none."""
        return None

    def step(self, previous: torch.Tensor, hidden: torch.Tensor, state):
        """Transition bias [..., V] after token `previous` [...] at hidden state [..., H], and the next state."""
        return self.markov_w2(self.markov_w1(previous)), state


class GatedHead(MarkovHead):
    """The Markov head behind a gate that looks at the hidden state: W2 (sigmoid(G [h; W1[x]]) * W1[x])."""

    def __init__(self, vocab_size: int, rank: int, hidden_size: int, outputs: int | None = None):
        super().__init__(vocab_size, rank, hidden_size, outputs)
        self.gate_proj = nn.Linear(hidden_size + rank, rank)

    def step(self, previous, hidden, state):
        embedded = self.markov_w1(previous)  # [..., r]
        gate = torch.sigmoid(self.gate_proj(torch.cat([hidden, embedded], -1)))
        return self.markov_w2(gate * embedded), state


class RNNHead(MarkovHead):
    """A recurrent head: it remembers the whole drafted prefix in a state [..., r] that starts at zero."""

    def __init__(self, vocab_size: int, rank: int, hidden_size: int, outputs: int | None = None):
        super().__init__(vocab_size, rank, hidden_size, outputs)
        self.joint_proj = nn.Linear(2 * rank + hidden_size, 3 * rank)

    def begin(self, hidden):
        return hidden.new_zeros(*hidden.shape[:-2], self.markov_w1.embedding_dim)

    def step(self, previous, hidden, state):
        joint = self.joint_proj(torch.cat([state, self.markov_w1(previous), hidden], -1))
        gate, candidate, output = joint.chunk(3, -1)
        gate = torch.sigmoid(gate)
        state = gate * state + (1 - gate) * torch.tanh(candidate)
        return self.markov_w2(torch.tanh(output)), state


SEQUENTIAL_HEADS = {"vanilla": MarkovHead, "gated": GatedHead, "rnn": RNNHead}


def transition_biases(head: MarkovHead, previous: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Biases [..., g, V] of a whole block whose tokens are known (training): previous [..., g], hidden [..., g, H]."""
    state, biases = head.begin(hidden), []
    for k in range(previous.shape[-1]):
        bias, state = head.step(previous[..., k], hidden[..., k, :], state)
        biases.append(bias)
    return torch.stack(biases, -2)


class ConfidenceHead(nn.Module):
    """One logit a position: does this draft token survive, given that its predecessors did?"""

    def __init__(self, inputs: int):
        super().__init__()
        self.proj = nn.Linear(inputs, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Confidence logits [...] of inputs [..., H] or [..., H + r]."""
        return self.proj(inputs).squeeze(-1)
