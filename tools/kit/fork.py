"""A course of one's own: `python -m tools.kit.fork OWNER/NAME --tag TAG` gives badges, links and
setup cells another repository.

With a tag (or a branch), badges open the notebooks at it, and setup cells clone the code at it.
Both names stand in dspark_lite/common/about.py, in notebooks, and wherever a page links. Nothing is
executed, outputs stay. Run it in a clone of the fork, commit what it changed, and make the tag
there.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from dspark_lite.common.about import VERSION
from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import ROOT, write_text
from tools.errors import report_errors

ABOUT = Path("dspark_lite", "common", "about.py")
NAMED = re.compile(r'^REPOSITORY = "(.+)"$', re.M)
PAGES = {".md", ".py", ".yml", ".yaml", ".cff", ".toml", ".ipynb"}


def check_repository(name: str, tag: str = "") -> None:
    """Raise RequestError unless `name` can be a repository of GitHub's, and `tag` is "" or can be a
    tag."""
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?/[A-Za-z0-9._-]+", name):
        raise RequestError(
            f"{name!r} is no repository; it is OWNER/NAME, as in its address on GitHub"
        )
    words = re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", tag)
    if tag and (not words or ".." in tag or tag.endswith(".lock")):
        raise RequestError(
            f"{tag!r} is no tag; it has letters, digits, and . _ - between them, such as 2027-spring"
        )


def renamed(text: str, old: str, new: str, tag: str = "") -> str:
    """Return a page or notebook with the addresses and the clone's folder of the repository `new`
    for those of `old`.

    Badges open notebooks at the `tag`, and setup cells clone it. With "" badges lead to the main
    branch, and setup cells clone the tag of this version, or the newest where it has none.
    """
    text = re.sub(
        rf"(github\.com/|google\.com/github/){re.escape(old)}(?![\w-])", rf"\g<1>{new}", text
    )
    text = text.replace(
        "{}.github.io/{}".format(*old.split("/")), "{}.github.io/{}".format(*new.split("/"))
    )
    text = re.sub(rf'^REPOSITORY = "{re.escape(old)}"$', f'REPOSITORY = "{new}"', text, flags=re.M)
    text = re.sub(r'^TAG = "[^"]*"', f'TAG = "{tag}"', text, flags=re.M)
    text = re.sub(
        rf"(google\.com/github/{re.escape(new)}/blob)/[^/]+/", rf"\g<1>/{tag or 'main'}/", text
    )
    version = tag or f"v{VERSION} || {{clone}}"
    text = re.sub(r"(\{clone\} --branch )[^ \"\\]+(?: \|\| \{clone\})?", rf"\g<1>{version}", text)
    before, after = re.escape(old.split("/")[1]), new.split("/")[1]
    # What a clone makes: in setup cells (JSON has a backslash before each quote), in commands, in
    # nbgitpuller's links, in words.
    places = (r'(?:Path|os\.chdir)\(\\?"', r"\bcd ", r"\blab/tree/", r"\ba folder `")
    return re.sub(rf"({'|'.join(places)}){before}(?![\w-])", rf"\g<1>{after}", text)


def fork(root: Path, new: str, tag: str = "") -> list[str]:
    """Give the clone at `root` another name, and a tag or ""; return the files that it changed,
    relative to the root."""
    check_repository(new, tag)
    found = NAMED.search((root / ABOUT).read_text(encoding="utf-8"))
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    changed = []
    for name in (name for name in listed if Path(name).suffix in PAGES and (root / name).is_file()):
        before = (root / name).read_text(encoding="utf-8")
        after = renamed(before, found[1], new, tag)
        if after != before:
            write_text(root / name, after)
            changed.append(name)
    return changed


@report_errors
def main(arguments: list[str] | None) -> None:
    parser = argparse.ArgumentParser(
        prog="fork", description="Give badges, links and setup cells another repository."
    )
    parser.add_argument("repository", metavar="OWNER/NAME")
    parser.add_argument(
        "--tag", default="", help="what badges open and setup cells clone (default: the newest)"
    )
    options = parser.parse_args(arguments)
    changed = fork(ROOT, options.repository, options.tag)
    print(
        f"{len(changed)} files name {options.repository} now; look at `git diff`, and commit them."
    )
    if options.tag:
        print(
            f"Then `git tag {options.tag}` and `git push origin {options.tag}`: badges and setup cells lead there."
        )


if __name__ == "__main__":
    sys.exit(main())
