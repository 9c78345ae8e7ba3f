"""The scoreboard of lessons 03 to 06: accepted length and speed-up of the drafters so far, from the stored benchmark."""

from ..common.files import ROOT
from ..common.names import DOMAINS, DRAFTER_LABELS
from ..common.recorded import read

BENCHMARK = ROOT / "assets" / "measurements" / "bench.json"


def benchmark_rows() -> dict[tuple[str, str], dict]:
    """The rows of the stored benchmark by drafter and domain."""
    return {(row["drafter"], row["domain"]): row for row in benchmark()["rows"]}


def benchmark() -> dict:
    """What `python -m dspark_lite bench` has written."""
    return read(BENCHMARK, "python -m dspark_lite bench --json assets/measurements/bench.json")


def scoreboard(*drafters: str) -> str:
    """A table of these drafters below plain decoding: accepted length by domain, then speed-up by domain."""
    found, heads = benchmark_rows(), "".join(f"{domain:>7}" for domain in DOMAINS)
    lines = [f"{'':16}{'τ, tokens per round':^21}   {'times plain decoding':^21}", f"{'':16}{heads}   {heads}"]
    for name in ("plain", *drafters):
        cells = ("".join(f"{found[name, domain][column]:7.2f}" for domain in DOMAINS) for column in ("accepted_length", "speedup"))
        lines.append(f"{DRAFTER_LABELS[name]:16}" + "   ".join(cells))
    return "\n".join([*lines, f"measured on {benchmark()['device']}, {benchmark()['prompts']} prompts per domain"])
