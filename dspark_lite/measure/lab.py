"""The lab a notebook works in: `lab = setup()`, then lab.target, lab.drafter("dspark"), lab.prompts["math"]."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import torch

from ..common.errors import DSparkLiteError, RequestError
from ..common.names import DOMAINS, PROFILES
from ..decoding.target import Target
from ..models.checkpoints import EMBEDDED, default_dtype, load_drafter, load_target
from ..world.corpus import examples
from ..world.examples import examples as world_examples
from ..world.tokenizer import chat_ids

MIN_FREE_MEMORY = 14 * 2**30  # bytes free on a GPU before the released weights are chosen
HELD_OUT_SEED = 2026
NEW_TOKENS = {"tiny": 160, "deep": 400, "released": 256}


@dataclass
class Lab:
    """A target, its drafters (one held at a time) and held-out prompts, on one device."""

    profile: str
    target: Target
    prompts: dict[str, list[str]]
    seed: int = 0

    def __post_init__(self):
        self.tokenizer, self.device = self.target.tokenizer, self.target.device
        self.stop_token_ids = self.target.stop_token_ids
        self.max_new_tokens = NEW_TOKENS[self.profile]
        self._held: tuple[str, object] | None = None

    @property
    def drafters(self) -> list[str]:
        """The names that `drafter` takes."""
        return [name for name in PROFILES[self.profile] if name != "target"]

    def drafter(self, name: str):
        """The drafter of this name, folder or Hub id; the one held before is let go, so two never share the memory."""
        self.check_drafter(name)
        if self._held is None or self._held[0] != name:
            self._held = None
            self._held = (name, load_drafter(PROFILES[self.profile].get(name, name), self.target))
        return self._held[1]

    def check_drafter(self, name: str) -> None:
        """Raises DSparkLiteError for a name that `drafter` does not take."""
        elsewhere = "/" in name or Path(name).is_dir() or (EMBEDDED / name).is_dir()
        if name not in self.drafters and not elsewhere:
            raise DSparkLiteError(f"there is no drafter {name!r} in this lab; drafters are {', '.join(self.drafters)}, "
                                  "a folder or a Hub id (org/name)")

    def encode(self, prompt: str) -> torch.Tensor:
        """Token ids [1, n] of a user's first turn, chat template applied, thinking off."""
        return torch.tensor([chat_ids(self.tokenizer, prompt)], device=self.device)

    def decode(self, token_ids) -> str:
        """The text of token ids, special tokens left out."""
        return self.tokenizer.decode(token_ids, skip_special_tokens=True)

    def generator(self, seed: int | None = None) -> torch.Generator:
        """A fresh random generator on the lab's device."""
        return torch.Generator(self.device).manual_seed(self.seed if seed is None else seed)

    @property
    def device_name(self) -> str:
        """What the device calls itself, for labels of measurements."""
        return device_name(self.device)

    @property
    def versions(self) -> dict[str, str]:
        """Versions that a measurement should carry."""
        return versions()


def device_name(device: torch.device) -> str:
    """What a device calls itself; a CPU is told apart by its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU ({threads} {'thread' if threads == 1 else 'threads'})"


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that numbers depend on."""
    import transformers

    from ..common.about import VERSION

    return {"dspark_lite": VERSION, "python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__}


def choose_profile(profile: str | None = None) -> str:
    """The profile asked for, else DSPARK_PROFILE, else "released" on a GPU with 14 GB free and "tiny" elsewhere."""
    profile = profile or os.environ.get("DSPARK_PROFILE")
    if profile is None:
        roomy = torch.cuda.is_available() and torch.cuda.mem_get_info()[0] >= MIN_FREE_MEMORY
        profile = "released" if roomy else "tiny"
    if profile not in PROFILES:
        raise DSparkLiteError(f"the profile is {profile!r}; it must be one of {', '.join(PROFILES)}")
    return profile


def held_out(domain: str, count: int, profile: str = "tiny"):
    """The first `count` held-out examples of a domain, always the same ones."""
    draw = world_examples if profile == "deep" else examples
    return draw(domain, count, HELD_OUT_SEED, held_out=True, distinct=True)


def setup(profile: str | None = None, *, seed: int = 0, prompts: int = 40, target: str | None = None) -> Lab:
    """Loads the target of the profile, or another `target`, and `prompts` held-out prompts a domain; seeds torch.

    Raises DSparkLiteError for an unknown profile or a target that cannot read text, and CheckpointError where weights
    cannot be had.
    """
    profile = choose_profile(profile)
    torch.manual_seed(seed)
    device = torch.device("cuda" if profile == "released" and torch.cuda.is_available() else "cpu")
    loaded = load_target(target or PROFILES[profile]["target"], device=device, dtype=default_dtype(device))
    if loaded.tokenizer is None:
        raise RequestError(f"{loaded.name} has no tokenizer.json, so it cannot read text; use it from Python with token "
                           "ids")
    texts = {domain: [example.prompt for example in held_out(domain, prompts, profile)] for domain in DOMAINS}
    return Lab(profile, loaded, texts, seed)
