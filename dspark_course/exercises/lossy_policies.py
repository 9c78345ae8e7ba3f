"""Which policies look ahead: the checker of lesson 10's question, a set of letters."""

from .checking import Mistake, checker, finished

POLICIES = set("ABCDE")
LOSSY = {"C", "D"}
# No letter is named: of two choices, the one that is wrong gives the other away.
TOO_MANY = ("a policy in your set is lossless. Whatever was known before a token was drawn (a fixed length, earlier "
            "rounds, the drafts before it) may decide whether it is verified")
TOO_FEW = ("a policy outside your set is lossy. Follow what each one looks at: does a token that has been drawn, "
           "itself or by what is computed from it, help to decide whether that token is verified?")


@checker
def check_lossy_policies(answer):
    """Checks a set of the letters A to E."""
    if not isinstance(finished(answer), (set, frozenset, list, tuple, str)):
        name = type(answer).__name__
        raise Mistake(f'write a set of letters from A to E, as {{"A", "B"}}, not a value of type {name}')
    letters = {str(letter).strip().upper() for letter in answer}
    if letters - POLICIES:
        raise Mistake('write a set of letters from A to E, as {"A", "B"}')
    hints = [hint for hint, wrong in ((TOO_MANY, letters - LOSSY), (TOO_FEW, LOSSY - letters)) if wrong]
    if hints:
        raise Mistake("; ".join(hints))
