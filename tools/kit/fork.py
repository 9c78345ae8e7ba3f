"""A course of one's own: `python -m tools.kit.fork OWNER/NAME` gives badges, links and setup cells another repository.

The name stands in dspark_lite/common/about.py, and wherever a page links to it. The notebooks are then written anew from their
sources; nothing is executed, outputs stay. Run it in a clone of the fork and commit what it changed.
"""

import re
import subprocess
import sys
from pathlib import Path

from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import ROOT, write_text
from dspark_course.common.told import told

ABOUT = Path("dspark_lite", "common", "about.py")
NAMED = re.compile(r'^REPOSITORY = "(.+)"$', re.M)
PAGES = {".md", ".py", ".yml", ".yaml", ".cff", ".toml", ".ipynb"}


def check_repository(name: str) -> None:
    """Raises RequestError unless a name can be a repository of GitHub's."""
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?/[A-Za-z0-9._-]+", name):
        raise RequestError(f"{name!r} is no repository; it is OWNER/NAME, as in its address on GitHub")


def renamed(text: str, old: str, new: str) -> str:
    """A page or notebook in which every address of the repository `old`, and the folder that a clone of it makes, is that of `new`."""
    text = re.sub(rf"(github\.com/|google\.com/github/){re.escape(old)}(?![\w-])", rf"\g<1>{new}", text)
    text = text.replace("{}.github.io/{}".format(*old.split("/")), "{}.github.io/{}".format(*new.split("/")))
    text = re.sub(rf'^REPOSITORY = "{re.escape(old)}"$', f'REPOSITORY = "{new}"', text, flags=re.M)
    before, after = old.split("/")[1], new.split("/")[1]
    return re.sub(rf'(Path\(\\?"){re.escape(before)}((?:\.part)?\\?")', rf"\g<1>{after}\g<2>", text)


def fork(root: Path, new: str) -> list[str]:
    """Gives the clone at `root` another name; returns the files that it changed, relative to the root."""
    check_repository(new)
    found = NAMED.search((root / ABOUT).read_text(encoding="utf-8"))
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    changed = []
    for name in (name for name in listed if Path(name).suffix in PAGES and (root / name).is_file()):
        before = (root / name).read_text(encoding="utf-8")
        after = renamed(before, found[1], new)
        if after != before:
            write_text(root / name, after)
            changed.append(name)
    return changed


@told
def main(arguments: list[str] | None) -> None:
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1:
        raise RequestError("give one repository: make fork OWNER/NAME")
    changed = fork(ROOT, given[0])
    print(f"{len(changed)} files name {given[0]} now; look at `git diff`, and commit them.")


if __name__ == "__main__":
    sys.exit(main())
