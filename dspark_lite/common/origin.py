"""The origin of a measurement (device, target, versions), and its differences from this machine."""

import platform
from dataclasses import asdict, dataclass, field

import torch

from .about import VERSION
from .errors import RequestError
from .fingerprint import fingerprint

TIMED_LIBRARIES = ("torch", "transformers")  # their kernels make up the time of a step


def device_name(device: torch.device) -> str:
    """Return the name of a device; for a CPU, its number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU ({threads} {'thread' if threads == 1 else 'threads'})"


def folder_name(text: str) -> str:
    """Return a folder name for a text with spaces and brackets, such as a device's name."""
    return "-".join(text.replace("(", "").replace(")", "").lower().split())


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that change numbers."""
    import transformers

    return {
        "dspark_lite": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


@dataclass(frozen=True)
class Origin:
    """The device, the target and the versions of a measurement.

    The target is its name, its dtype and the fingerprint of its weights. An empty field is unknown
    and is not compared. Raise RequestError for fields of another type.
    """

    device: str
    target: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    dtype: str = ""
    fingerprint: str = ""

    def __post_init__(self):
        texts = (self.device, self.target, self.dtype, self.fingerprint)
        if not (
            isinstance(self.versions, dict)
            and all(isinstance(text, str) for text in (*texts, *self.versions.values()))
        ):
            raise RequestError(
                f"the origin is {self.fields()}; device, target, dtype and fingerprint are texts, and versions holds one for each "
                "library"
            )

    @classmethod
    def of(cls, target) -> "Origin":
        """Return the origin of a measurement of `target` on this machine."""
        return cls(
            device_name(target.device),
            target.name,
            versions(),
            str(target.dtype).removeprefix("torch."),
            fingerprint(target) or "",
        )

    @classmethod
    def from_fields(cls, **fields) -> "Origin | None":
        """Return the origin in the fields of a file, or None if they name no device."""
        return (
            cls(**{name: value for name, value in fields.items() if value})
            if fields.get("device")
            else None
        )

    def fields(self) -> dict:
        """Return the fields that are known, for a file."""
        return {name: value for name, value in asdict(self).items() if value}

    def differences(self, target) -> list[str]:
        """Return the differences from a measurement of `target` on this machine, in words."""
        here = Origin.of(target)
        pairs = {
            "device": (self.device, here.device),
            "number format": (self.dtype, here.dtype),
            **{name: (self.versions.get(name), here.versions[name]) for name in TIMED_LIBRARIES},
        }
        # The fingerprint decides: equal weights may have two names, and a name two weights.
        weights = (
            (self.fingerprint, here.fingerprint) if self.fingerprint else (self.target, here.target)
        )
        pairs["target"] = (
            weights if weights[0] == weights[1] else (_target_name(self), _target_name(here))
        )
        return [
            f"{what} {was}, not {now}" for what, (was, now) in pairs.items() if was and was != now
        ]


def _target_name(origin: Origin) -> str:
    """Return a target's name with its fingerprint."""
    return f"{origin.target} ({origin.fingerprint})" if origin.fingerprint else origin.target


ORIGIN_FIELDS = {name: None for name in ("device", "target", "versions", "dtype", "fingerprint")}


def why_stale(origin: Origin | None, target) -> str | None:
    """Return why a cost table of this origin does not hold for `target` on this machine.

    Return None if it holds, or if its origin is unknown.
    """
    differences = origin.differences(target) if origin else []
    if not differences:
        return None
    return (
        f"the cost table was measured elsewhere ({'; '.join(differences)}), so its times say nothing here: measure one with "
        "python -m dspark_lite profile"
    )


def check_origin(origin: Origin | None, target) -> None:
    """Raise RequestError if a cost table of this origin does not hold for a target."""
    if reason := why_stale(origin, target):
        raise RequestError(reason)
