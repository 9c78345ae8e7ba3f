"""The oldest versions of other libraries that this one runs with; an older one is told in a sentence, before its import fails."""

from importlib.metadata import PackageNotFoundError, version

from packaging.version import Version

from .errors import DSparkLiteError

OLDEST = {"torch": "2.11", "transformers": "5.0", "huggingface_hub": "1.23"}


def check_versions() -> None:
    """Raise DSparkLiteError for a library that is missing or too old."""
    for name, oldest in OLDEST.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = None
        if found is None or Version(found).release < Version(oldest).release:
            raise DSparkLiteError(
                f"{f'{name} {found} is too old' if found else f'{name} is missing'}: {oldest} or newer is needed; run "
                f'`pip install --upgrade "{name}>={oldest}"` and restart, or on Colab choose a newer runtime'
            )
