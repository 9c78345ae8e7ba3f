# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] tags=["header"] minutes=35 difficulty="medium"
# # Seven ways to break the rule
#
# A lossy decoder raises no error and writes fluent text. Here are seven, each one expression away from the right one, and two ways to
# catch them: enumeration, which sees everything, and counting, which sees what is larger than its noise.
#
# **What you need**: [lesson 02](../02_the_lossless_rule.ipynb); for the last two mistakes [lesson 10](../10_the_scheduler.ipynb).

# %% tags=["setup"]
pass

# %% [markdown]
# ## Models that are tables
#
# Row $i$ is the distribution of the token after token $i$, which is 0 or 1. So every text of four tokens has a probability that can be
# computed exactly, through the real `generate`.

# %%
import inspect

import torch

from dspark_lite.course.own_decoder import verifying
from dspark_lite.course.figures import lesson_02 as figures
from dspark_lite.course.lesson_text import glue
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget

target, draft_table = ToyTarget([[0.7, 0.3], [0.4, 0.6]]), torch.tensor([[0.45, 0.55], [0.8, 0.2]])
drafter = ToyDrafter(draft_table, first_confidence=0.5, confidence=[0.5, 0.5], gamma=2)
exact = output_distribution(target, None, None, length=4)


def distance_with(rule, drafter=drafter, policy=None):
    """Total variation of generate's output from the target's, with the verifier `rule` in the package's place."""
    found = output_distribution(target, drafter, policy, length=4, rule=verifying.as_accept(rule))
    return total_variation(found, exact)


measured = {"the rule as derived": distance_with(verifying.verify)}
assert measured["the rule as derived"] < 1e-5

# %% [markdown]
# ## Four in the verifier
#
# 1. $p$ and $q$ swapped in the coin
# 2. the correction drawn from $p$, not from the residual
# 3. the residual not renormalised, in a hand-written draw that gives what is missing to the last token
# 4. the bonus drawn from the row before
#
# Which of the four changes the text most, which least?

# %%
source = inspect.getsource(verifying.verify)


def changed(old, new):
    """`verify` with the expression `old` replaced by `new`, which may call your own functions."""
    assert source.count(old) == 1, f"{old!r} must stand in verify exactly once"
    names = {**vars(verifying), **globals()}
    exec(source.replace(old, new), names)
    return names["verify"]


def not_renormalised(p, q):
    """max(p - q, 0) [V] as a cumulative-sum draw sees it: what is missing to 1 goes to the last token."""
    owed = (p - q).clamp(min=0)
    owed[-1] += 1 - owed.sum()
    return owed


mistakes = {"1 p and q swapped in the coin": changed("p[k, x] / q[k, x]", "q[k, x] / p[k, x]"),
            "2 correction drawn from p": changed("residual(p[k], q[k])", "p[k]"),
            "3 residual not renormalised": changed("residual(p[k], q[k])", "not_renormalised(p[k], q[k])"),
            "4 bonus from the row before": changed("p[len(drafts)]", "p[len(drafts) - 1]")}
found = {name: distance_with(rule) for name, rule in mistakes.items()}
measured |= found
for name in sorted(found, key=found.get, reverse=True):
    print(f"{name:30} {found[name]:.3f}")

# %% [markdown]
# On these tables the coin does most harm: what is offered too often is always kept, and with two tokens the result is $q$ itself. The bonus
# does least: it acts only after whole blocks.
#
# ## One in the drafter
#
# The rule is right for the $q$ that a token was *drawn* from. A drafter that draws from a softmax in 16 bits and hands over 32-bit probabilities claims a $q$ that it
# did not use. [DeepSpec](../../docs/references.md#deepspec), the paper's own code, did this in June 2026
# ([issue 31](https://github.com/deepseek-ai/DeepSpec/issues/31)).

# %%
from dspark_lite.decoding.proposal import Proposal


class Claiming(ToyDrafter):
    """Draws from its table and claims to have drawn from `claimed` [V, V]."""

    def propose(self, state, anchor, **how):
        proposal = super().propose(state, anchor, **how)
        before = torch.cat([anchor[:, None], proposal.tokens[:, :-1]], 1)
        return Proposal(proposal.tokens, self.claimed[before], proposal.confidence_logits)


def claiming(drawn, claimed):
    """A table drafter that draws from one table and claims another, both [V, V]."""
    liar = Claiming(drawn, first_confidence=0.5, confidence=[0.5, 0.5], gamma=2)
    liar.claimed = claimed
    return liar


rounded = torch.softmax(draft_table.log().bfloat16(), -1).float()
honest = rounded / rounded.sum(-1, keepdim=True)
measured["5 drawn in 16 bits, float32 claimed"] = distance_with(verifying.verify, claiming(rounded, draft_table))
measured["drawn in 16 bits, the same claimed"] = distance_with(verifying.verify, claiming(honest, honest))

# %% [markdown]
# ## Two in the policy
#
# The verifier is right, and a policy decides how much of a block it sees. It may look at everything that was known *before* a token was drawn. Number 6 looks at
# the whole block's confidences, of which the later ones depend on the drawn tokens; number 7 withholds draws that were unlikely.

# %%
from dspark_lite import scheduling
from dspark_lite.losslessness.toys import appendix_a


def unlikely_draws(proposal):
    """Stops before the first token that the drafter itself gave less than 30 %."""
    drawn = proposal.probs.gather(-1, proposal.tokens.unsqueeze(-1)).squeeze(-1)
    return (drawn >= 0.3).long().cumprod(-1).sum(-1)


_, _, cost_table = appendix_a()
drafter.confidence, drafter.first_confidence = torch.tensor([0.9, 0.0]), 0.8  # as in the paper's Appendix A
measured["policy: confidence threshold"] = distance_with(verifying.verify, policy=scheduling.threshold(0.5))
measured["6 policy: looks at the whole block"] = distance_with(verifying.verify, policy=scheduling.retrospective(cost_table))
measured["7 policy: unlikely draws withheld"] = distance_with(verifying.verify, policy=unlikely_draws)
picture = figures.total_variation_figure(measured)
lossy = {name: distance for name, distance in measured.items() if distance > 1e-5}
assert len(lossy) == 7 and min(lossy, key=lossy.get).startswith("5 ")
glue(quietest=min(lossy.values()), millions=1e-6 / min(lossy.values()) ** 2)

# %% [markdown]
# Seven lossy decoders, and none of them raises an error. The quietest is the fifth, off by ⟦quietest:.1g⟧: noise is about $1/\sqrt{n}$, so
# a count would need some ⟦millions:.0f⟧ million draws to see it.
#
# Invent one of your own: `changed(old, new)` with something that somebody might really write. Is there one whose total variation is not zero and yet below
# 0.01? Think of precision, and of safeguards.

# %%
own = changed("p[k, x] / q[k, x]", "p[k, x] / (q[k, x] + 1e-3)")  # put yours in its place
print(f"total variation {distance_with(own):.2g}")

# %% [markdown]
# ## A count on a real vocabulary
#
# There are too many paths there to visit. So we count: one round at one place of an answer, many times. The target's own probabilities say how often each token should come
# after the anchor, and the chi-square test turns the difference into a p-value. We reject below $10^{-3}$, which happens to an exact decoder once in a
# thousand.

# %%
import dspark_lite
from dspark_lite.decoding.sampling import accept
from dspark_lite.course.measure.chi_square import (
    after_anchor,
    chi_square,
    next_token_counts,
    up_to_a_fork,
)

lab = dspark_lite.setup()
dspark = lab.drafter("dspark")
ids = up_to_a_fork(lab.target, dspark, lab.encode(lab.prompts["chat"][0]))  # where target and drafter disagree
_, target_next = after_anchor(lab.target, ids, temperature=1.0)  # [V]


def swapped(target_probs, draft_probs, draft_tokens, lengths, generator):
    """The package's rule with the drafter's rows in the target's place and the target's in the drafter's."""
    wrong_way = torch.cat([draft_probs, target_probs[:, -1:]], 1)
    return accept(wrong_way, target_probs[:, :-1], draft_tokens, lengths, generator)


for name, rule in (("exact rule", accept), ("p and q swapped", swapped)):
    counts = next_token_counts(lab.target, dspark, ids, 1000, 1.0, lab.generator(), gamma=1, accept=rule)
    value = chi_square(counts, target_next)
    print(f"{name:16} p-value {value:.3f}: {'rejected' if value < 1e-3 else 'not rejected'}")

# %% [markdown]
# A count sees only what is larger than its own noise, about $1/\sqrt{n}$: a few thousand draws find an error of a few percent, never one of a millionth. That is why the
# enumeration comes first.
