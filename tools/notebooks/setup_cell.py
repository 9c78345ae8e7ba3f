"""The first code cell of every notebook: it finds the clone, or clones the code of its own version, and deletes nothing."""

from dspark_lite.common.about import REPOSITORY, TAG, VERSION

CLONE = REPOSITORY.split("/")[1]
# The version of a notebook has a tag once it is released; until then, its code is the default branch's.
CLONES = f"{{clone}} --branch {TAG}" if TAG else f"{{clone}} --branch v{VERSION} || {{clone}}"
SETUP = f'''#@title Find the course, here or above; a notebook that came alone clones it
import os, subprocess, sys
from pathlib import Path

if not any((folder / "dspark_lite").is_dir() for folder in Path("{CLONE}/here").absolute().parents):
    clone = "git clone --quiet --depth 1 https://github.com/{REPOSITORY}"
    git = subprocess.run(f"{CLONES}", shell=True, capture_output=True, text=True)
    if git.returncode: raise RuntimeError(f"The course cannot be cloned into {{Path.cwd()}}: {{git.stderr}}")
if Path("{CLONE}/notebooks").is_dir(): os.chdir("{CLONE}/notebooks")
sys.path.insert(0, str(next(up for up in Path("here").absolute().parents if (up / "dspark_lite").is_dir())))'''
