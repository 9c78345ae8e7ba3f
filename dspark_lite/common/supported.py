"""The oldest supported versions of other libraries.

An older version gets a clear sentence before its import fails.
"""

from importlib.metadata import PackageNotFoundError, version

from packaging.version import Version

from .errors import DSparkLiteError

OLDEST = {"torch": "2.11", "transformers": "5.0", "huggingface_hub": "1.23"}


def check_versions() -> None:
    """Raise DSparkLiteError for a library that is missing or too old."""
    for name, oldest in OLDEST.items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = None
        if installed is None or Version(installed).release < Version(oldest).release:
            raise DSparkLiteError(
                f"{f'{name} {installed} is too old' if installed else f'{name} is missing'}: {oldest} or newer is needed; run "
                f'`pip install --upgrade "{name}>={oldest}"` and restart, or on Colab choose a newer runtime'
            )
