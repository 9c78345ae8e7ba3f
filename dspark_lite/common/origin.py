"""Where a measurement was made: on which device, of which target, with which versions; and whether here is elsewhere."""

import platform
from dataclasses import asdict, dataclass, field

import torch

from .about import VERSION
from .errors import RequestError
from .fingerprint import fingerprint

DECIDING = ("torch", "transformers")  # the libraries whose kernels a step's time is made of


def device_name(device: torch.device) -> str:
    """What a device calls itself; a CPU is told apart by its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU ({threads} {'thread' if threads == 1 else 'threads'})"


def folder_name(text: str) -> str:
    """A name with spaces and brackets, such as a device's, as that of a folder."""
    return "-".join(text.replace("(", "").replace(")", "").lower().split())


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that numbers depend on."""
    import transformers

    return {
        "dspark_lite": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


@dataclass(frozen=True)
class Origin:
    """The device, the target by its name, number format and weights (a fingerprint), and the versions that a measurement is
    of. An empty field was not told, and is not compared. Raises RequestError for fields of other kinds."""

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
        """That of what is measured of this target now."""
        return cls(
            device_name(target.device),
            target.name,
            versions(),
            str(target.dtype).removeprefix("torch."),
            fingerprint(target) or "",
        )

    @classmethod
    def told(cls, **fields) -> "Origin | None":
        """That of a file with these fields; None for one that names no device."""
        return (
            cls(**{name: value for name, value in fields.items() if value})
            if fields.get("device")
            else None
        )

    def fields(self) -> dict:
        """What a file keeps of it."""
        return {name: value for name, value in asdict(self).items() if value}

    def differences(self, target) -> list[str]:
        """What a measurement of `target` here and now would have otherwise, a few words each."""
        here = Origin.of(target)
        pairs = {
            "device": (self.device, here.device),
            "number format": (self.dtype, here.dtype),
            **{name: (self.versions.get(name), here.versions[name]) for name in DECIDING},
        }
        # Weights under another name are the same weights; under the same name they may be others.
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
    return f"{origin.target} ({origin.fingerprint})" if origin.fingerprint else origin.target


ORIGIN_FIELDS = {name: None for name in ("device", "target", "versions", "dtype", "fingerprint")}


def stale(origin: Origin | None, target) -> str | None:
    """Why a cost table of this origin says nothing of `target` here and now, in one sentence; None where it does, or where
    its origin was not told."""
    differences = origin.differences(target) if origin else []
    if not differences:
        return None
    return (
        f"the cost table was measured elsewhere ({'; '.join(differences)}), so its times say nothing here: measure one with "
        "python -m dspark_lite profile"
    )


def check_origin(origin: Origin | None, target) -> None:
    """Raise RequestError where a cost table of this origin is `stale` for a target."""
    if says := stale(origin, target):
        raise RequestError(says)
