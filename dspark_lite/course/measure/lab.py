"""The lab a notebook works in: `lab = setup()`, then lab.target, lab.drafter("dspark"),
lab.prompts["math"]."""

import gc
import os
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from pathlib import Path

import torch

from ...common.devices import named_device
from ...common.errors import DSparkLiteError, RequestError, near_miss
from ...common.origin import check_origin, device_name, versions
from ...decoding import Generation, generate
from ...decoding.sampling import check_seed
from ...decoding.target import Target
from ...fast import fast_path
from ...models.checkpoints import EMBEDDED, load_drafter, load_target
from ...scheduling.additive_costs import load_costs
from ..names import DOMAINS, PROFILES
from ..result_files import reference
from ..world.example import Example
from ..world.examples import examples
from ..world.prompt_files import Prompt
from ..world.tokenizer import chat_ids

MIN_FREE_MEMORY = 14 * 2**30  # bytes free on a GPU before the released weights are chosen
HELD_OUT_SEED = 2026
HELD_OUT_PROMPTS = "held_out_prompts.json"  # tools/measure/held_out.py writes it
NUMBER_FORMATS = ("float32", "bfloat16", "float16")
NEW_TOKENS = {"tiny": 160, "released": 256}


@dataclass
class Lab:
    """A target, its drafters and held-out prompts, on one device. The lab keeps one drafter at a
    time; a caller may hold more."""

    profile: str
    target: Target
    prompts: dict[str, list[str | Prompt]]
    seed: int = 0
    fast: bool | str = False  # whether measurements take the fast path, or its backend
    enable_thinking: bool = False  # whether the target may think before it answers

    def __post_init__(self):
        self.tokenizer, self.device = self.target.tokenizer, self.target.device
        self.stop_token_ids = self.target.stop_token_ids
        self.max_new_tokens = NEW_TOKENS[self.profile]
        self._held: tuple[str, object] | None = None

    @property
    def prepare(self):
        """Return the `prepare` of `generate` for the lab's path: None, or the fast path with a
        backend."""
        if not self.fast:
            return None
        return partial(fast_path, backend=None if self.fast is True else self.fast)

    @property
    def drafters(self) -> list[str]:
        """Return the names that `drafter` takes."""
        return [name for name in PROFILES[self.profile] if name != "target"]

    def drafter(self, name: str | Path):
        """Return the drafter of this name, folder or Hub id; the lab lets go of the one before.

        Raise DSparkLiteError for another name.
        """
        if not isinstance(name, (str, Path)):
            raise RequestError(
                f"lab.drafter takes a name, a folder or a Hub id (org/name), not a {type(name).__name__}"
            )
        name = str(name)
        elsewhere = "/" in name or Path(name).is_dir() or (EMBEDDED / name).is_dir()
        if name not in self.drafters and not elsewhere:
            raise DSparkLiteError(
                f"there is no drafter {name!r} in this lab; drafters are {', '.join(self.drafters)}, "
                f"a folder or a Hub id (org/name){near_miss(name, self.drafters)}"
            )
        if self._held is None or self._held[0] != name:
            compiled, self._held = self._held and hasattr(self._held[1], "prepared"), None
            if compiled:
                gc.collect()  # a compiled pass and its drafter hold each other
            self._held = (name, load_drafter(PROFILES[self.profile].get(name, name), self.target))
        return self._held[1]

    def encode(self, prompt: str | Prompt, *, enable_thinking: bool | None = None) -> torch.Tensor:
        """Return token ids [1, n] of a user's first turn, chat template applied, or of a prompt of
        a file (`enable_thinking` None: as the lab). Raise RequestError for what is no text."""
        thinking = self.enable_thinking if enable_thinking is None else enable_thinking
        if isinstance(prompt, Prompt):
            ids = prompt.token_ids(self.tokenizer, enable_thinking=thinking)
        elif isinstance(prompt, str):
            ids = chat_ids(self.tokenizer, prompt, enable_thinking=thinking)
        else:
            raise RequestError(f"lab.encode takes a prompt's text, not a {type(prompt).__name__}")
        return torch.tensor([ids], device=self.device)

    def decode(self, token_ids) -> str:
        """Return the text of token ids, special tokens left out; raise RequestError for what are
        none."""
        try:
            return self.tokenizer.decode(token_ids, skip_special_tokens=True)
        except (TypeError, KeyError, OverflowError):  # which of them depends on the object
            raise RequestError(
                f"lab.decode takes token ids, such as the token_ids of a generation, not this {type(token_ids).__name__}"
            ) from None

    def generator(self, seed: int | None = None) -> torch.Generator:
        """Return a fresh random generator on the lab's device."""
        return torch.Generator(self.device).manual_seed(self.seed if seed is None else seed)

    def costs(self, path: Path | str):
        """Return the cost table in a file of SGLang's, of either form, for scheduling steps of this
        lab's target.

        Raise RequestError for one that was measured on another device, of another target or with
        other versions.
        """
        costs = load_costs(path)
        check_origin(costs.origin, self.target)
        return costs

    @property
    def device_name(self) -> str:
        """Return what the device calls itself, for labels of measurements."""
        return device_name(self.device)

    @property
    def versions(self) -> dict[str, str]:
        """Return the versions that a measurement should carry."""
        return versions()


def rollout(
    lab: Lab,
    drafter,
    prompt: str,
    index: int,
    *,
    temperature: float,
    policy=None,
    gamma: int | None = None,
    max_new_tokens: int | None = None,
) -> Generation:
    """Return `generate`'s answer to a prompt; the seed is the lab's plus `index`, so that a longer
    list begins with the same answers."""
    return generate(
        lab.target,
        drafter,
        lab.encode(prompt),
        max_new_tokens=max_new_tokens or lab.max_new_tokens,
        temperature=temperature,
        policy=policy,
        gamma=gamma,
        generator=lab.generator(lab.seed + index),
        prepare=lab.prepare,
    )


def choose_profile(profile: str | None = None) -> str:
    """Return the profile asked for, else DSPARK_PROFILE, else "released" on a GPU with 14 GB free
    and "tiny" elsewhere."""
    profile = profile or os.environ.get("DSPARK_PROFILE") or None  # set to nothing: not set
    if profile is None:
        roomy = torch.cuda.is_available() and torch.cuda.mem_get_info()[0] >= MIN_FREE_MEMORY
        profile = "released" if roomy else "tiny"
    if profile not in PROFILES:
        raise DSparkLiteError(
            f"the profile is {profile!r}; it must be one of {', '.join(PROFILES)}"
        )
    return profile


def held_out(domain: str, count: int) -> list[Example]:
    """Return the first `count` held-out examples of a domain, always the same ones."""
    return examples(domain, count, HELD_OUT_SEED, held_out=True)


def held_out_prompts(domain: str, count: int) -> list[str]:
    """Return the prompts of the first `count` held-out examples. They are read from a file if it
    has that many, because drawing takes seconds."""
    stored = reference(HELD_OUT_PROMPTS)[domain]
    if count <= len(stored):
        return stored[:count]
    return [example.prompt for example in held_out(domain, count)]


def setup(
    profile: str | None = None,
    *,
    seed: int = 0,
    prompts: int = 40,
    target: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    memory_gb: float | None = None,
    fast: bool | str = False,
) -> Lab:
    """Load the target of the profile, or another `target`, and `prompts` held-out prompts a domain;
    seeds torch.

    `device` ("cpu", "cuda"), the number format `dtype` ("float32", "bfloat16", "float16") and the
    most memory of a GPU that this process may take, `memory_gb`, default to DSPARK_DEVICE,
    DSPARK_DTYPE and DSPARK_MEMORY_GB, and where those are not set to the profile's device, the
    widest 16-bit format that it computes in (a CPU: float32) and all there is. In float32 greedy
    texts of every drafter are equal to plain decoding's; in 16 bit they may part at near-ties. With
    `fast` (True, or a backend of torch.compile) the lab's measurements of single requests take the
    fast path.

    Raise DSparkLiteError for an unknown profile or option, a target that cannot read text, and
    CheckpointError where weights cannot be had, or the device does not compute in the format.
    """
    profile = choose_profile(profile)
    check_seed(seed)
    if not isinstance(prompts, Integral) or prompts < 1:
        raise RequestError(
            f"prompts is {prompts!r}; it must be a whole number of prompts a domain, 1 or more"
        )
    torch.manual_seed(seed)
    gpu = profile == "released" and torch.cuda.is_available()
    if device is None:
        device = os.environ.get("DSPARK_DEVICE") or ("cuda" if gpu else "cpu")
    place = named_device(device)
    cap_memory(
        place, (os.environ.get("DSPARK_MEMORY_GB") or None) if memory_gb is None else memory_gb
    )
    number_format = _number_format(dtype or os.environ.get("DSPARK_DTYPE") or None)
    loaded = load_target(target or PROFILES[profile]["target"], device=place, dtype=number_format)
    if loaded.tokenizer is None:
        raise RequestError(
            f"{loaded.name} has no tokenizer.json, so it cannot read text; use it from Python with token "
            "ids"
        )
    texts = {domain: held_out_prompts(domain, prompts) for domain in DOMAINS}
    return Lab(profile, loaded, texts, seed, fast)


def _number_format(name: str | None) -> torch.dtype | None:
    """Return the number format called `name` (None: left to the device)."""
    if name not in (None, *NUMBER_FORMATS):
        raise RequestError(
            f"the number format is {name!r}; it must be one of {', '.join(NUMBER_FORMATS)}"
        )
    return name and getattr(torch, name)


def cap_memory(device: torch.device, gigabytes: float | str | None) -> int | None:
    """Let this process take at most `gigabytes` * 10^9 bytes of a GPU (None: all of it). Return the
    bytes that it may take, None on a CPU.

    Raise RequestError for what is no number above 0.
    """
    try:
        cap = None if gigabytes is None else float(gigabytes)
    except (ValueError, TypeError):
        cap = -1.0
    if cap is not None and not cap > 0:
        raise RequestError(f"the memory cap is {gigabytes!r} GB; it must be a number above 0")
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    total = torch.cuda.get_device_properties(device).total_memory
    most = total if cap is None else int(min(total, 1e9 * cap))
    torch.cuda.set_per_process_memory_fraction(
        most / total, torch.cuda.current_device() if device.index is None else device.index
    )
    return most
