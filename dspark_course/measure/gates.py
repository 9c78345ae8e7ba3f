"""Is the tiny world like the real one? What must hold of target and text before any drafter is compared.

Each gate is a bound on something measured, and stands beside the figure of the real world that it is taken from.
"""

from .evaluation import evaluate
from .lab import Lab
from .target_quality import target_quality

SMALL_LM_LENGTH = 4  # drafts per round of the small LM, as in the public notebook
SMALL_LM_LENGTHS = f"accepted length of the small LM, {SMALL_LM_LENGTH} drafts per round"  # a gate's name
CERTAIN_THERE, UNCERTAIN_THERE = "a little over half", "a fifth"  # of Qwen3-8B's tokens as it reasons (Wang et al., arXiv 2506.01939)
NOTEBOOK = {"math": 2.30, "code": 3.06, "chat": 2.40}  # Qwen3-0.6B under Qwen3-4B, draft length 4, as a public notebook measured it


def gate(name: str, domain: str, value: float, at_least: float | None = None, at_most: float | None = None, real: str = "") -> dict:
    """Something measured, in a domain or in "all", the bounds within which it has to lie (None: no bound), the real world's
    figure, and whether the bounds are met."""
    met = (at_least is None or at_least <= value) and (at_most is None or value <= at_most)
    return {"name": name, "domain": domain, "value": value, "at_least": at_least, "at_most": at_most, "real": real, "met": met}


def target_gates(rows: list[dict]) -> list[dict]:
    """Gates on what `target_quality` measured: right answers, recalled facts, entropy
    of chat against math, tokens that are certain."""
    by_domain = {row["domain"]: row for row in rows}
    right = [gate("answers that are right", domain, row["right"], at_least=0.9) for domain, row in by_domain.items() if domain != "chat"]
    right += [gate("facts recalled", "chat", by_domain["chat"]["recalled"], at_least=0.9)]
    ratio = by_domain["chat"]["entropy_nats"] / by_domain["math"]["entropy_nats"]
    certain = [gate("tokens below 0.01 nat", domain, row["certain"], at_most=0.3 if domain == "chat" else 0.6,
                    real=_of_reasoning(domain, CERTAIN_THERE))
               for domain, row in by_domain.items()]
    uncertain = [gate("tokens above 0.67 nat (reported)", domain, row["uncertain"], real=_of_reasoning(domain, UNCERTAIN_THERE))
                 for domain, row in by_domain.items()]
    return [*right, gate("entropy of chat over that of math", "chat", ratio, at_least=2.0), *certain, *uncertain]


def _of_reasoning(domain: str, share: str) -> str:
    """The real world's figure that was counted in reasoning, of which chat has none."""
    return "" if domain == "chat" else f"{share} (Qwen3-8B)"


def small_lm_gates(rows: list[dict]) -> list[dict]:
    """Gates on the small LM's accepted length with as many drafts, rows of `evaluate`."""
    return [gate(SMALL_LM_LENGTHS, row["domain"], row["accepted_length"], 2.0, 3.5,
                 f"{NOTEBOOK[row['domain']]:.2f}, Qwen3-0.6B under Qwen3-4B") for row in rows]


def measure_gates(lab: Lab, prompts: int) -> dict:
    """Measures all gates over `prompts` held-out prompts a domain."""
    measured = target_quality(lab, prompts)
    gates = target_gates(measured["rows"]) + small_lm_gates(evaluate(lab, ["small_lm"], lab.prompts, gamma=SMALL_LM_LENGTH)["rows"])
    return {**{key: value for key, value in measured.items() if key != "rows"}, "prompts": prompts, "quality": measured["rows"], "gates": gates}


def gate_line(row: dict) -> str:
    """A gate for a reader."""
    bounds = " and ".join(f"{words} {row[name]:g}" for name, words in (("at_least", "at least"), ("at_most", "at most")) if row[name] is not None)
    verdict = f"{'met' if row['met'] else 'NOT MET'} ({bounds})" if bounds else "reported"
    return f"{row['name']:62} {row['domain']:5} {row['value']:6.3f}  {verdict}" + (f"; real: {row['real']}" if row["real"] else "")
