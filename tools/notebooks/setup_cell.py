"""The first code cell of every notebook: it finds the clone, or on Colab clones the code of its own
version, and deletes nothing."""

from dspark_lite.common.about import REPOSITORY, TAG, VERSION

CLONE = REPOSITORY.split("/")[1]
# The version of a notebook has a tag once it is released; until then, its code is the default branch's.
VERSIONS = f'(["--branch", "{TAG}"],)' if TAG else f'(["--branch", "v{VERSION}"], [])'
SETUP = f'''#@title Find the course: clones it on Colab, looks upwards from here elsewhere
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def course_folder():
    """Return the folder that holds dspark_lite/, here or above; None if there is none."""
    folders = (Path.cwd(), *Path.cwd().parents)
    return next((folder for folder in folders if (folder / "dspark_lite" / "__init__.py").is_file()), None)


def clone_course(folder):
    """Clone the course into `folder`. What lies there is moved aside; the my_* files in it are copied to the clone."""
    address = "https://github.com/{REPOSITORY}"
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        course = Path(scratch, "course")
        if (folder / ".git").exists():  # of a fork, perhaps
            origin = ["git", "-C", str(folder), "remote", "get-url", "origin"]
            address = subprocess.run(origin, capture_output=True, text=True).stdout.strip() or address
        for version in {VERSIONS}:
            clone = ["git", "clone", "--quiet", "--depth", "1", *version, address, str(course)]
            subprocess.run(clone, capture_output=True)
            if course.exists():
                break
        else:
            raise RuntimeError(f"git cannot clone {{address}}: see to the network, and run this cell again")
        if folder.exists():
            aside = folder.rename(f"{{folder}}.{{time.strftime('%Y-%m-%d-%H%M%S')}}")
            print(f"{{folder}} was no whole clone of the course; it is {{aside}} now")
            for mine in aside.glob("notebooks/my_*"):
                shutil.copy(mine, course / "notebooks")
        course.rename(folder)


if course_folder() is None and "google.colab" in sys.modules:
    try:
        if not Path("{CLONE}", "dspark_lite", "__init__.py").is_file():
            clone_course(Path("{CLONE}"))
        os.chdir(Path("{CLONE}") / "notebooks")
    except OSError as error:
        raise RuntimeError(f"The course cannot be cloned into {{Path.cwd()}} ({{error}})") from None
if course_folder() is None:
    raise FileNotFoundError("This notebook must be opened inside a clone of https://github.com/{REPOSITORY}")
if str(course_folder()) not in sys.path:
    sys.path.insert(0, str(course_folder()))'''
