"""Does what a repository's pages say exist in it? Commands, folders after `cd`, modules, paths, links, addresses on GitHub."""

import functools
import re
import subprocess
import sys

import nbformat

from test_pages import broken

SPAN = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```\w*\n(.*?)^```|((?:^ {4}\S.*\n)+)", re.M | re.S)
FOLDERS = "assets|constraints|docs|dspark_lite|notebooks|tools|tests"
PLACE = re.compile(rf"(?<![\w/.:-])((?:{FOLDERS})/[\w./*-]*[\w*])")
# Names that stand for any name, and what a command writes.
ANY = re.compile(r"[A-Z]{2}|NN_name|/own$|_lite/(here)?$|^notebooks/my_")


def markdown(path) -> str:
    """Return the text of a page, or of a notebook's markdown cells."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


@functools.cache
def is_made(root, goal) -> bool:
    """Return whether make knows what to do for a goal."""
    words = [goal, "ann/course"] if goal == "fork" else [goal]
    return not subprocess.run(["make", "-n", "-C", root, *words], capture_output=True).returncode


@functools.cache
def commands(root) -> set[str]:
    """Return what course.py of a repository offers."""
    usage = subprocess.run([sys.executable, "course.py"], cwd=root, capture_output=True, text=True)
    return set(re.findall(r"^  (\S+)", usage.stderr, re.M))


def lines(text) -> list[str]:
    """Return the lines of a text's blocks of code, and the spans of code elsewhere."""
    blocks = [fenced or indented for fenced, indented in BLOCK.findall(text)]
    return [*"\n".join(blocks).splitlines(), *SPAN.findall(BLOCK.sub("", text))]


def wrong(root, path, repository) -> list[str]:
    """Return what a page at `path` says that does not hold in the `repository` (OWNER/NAME) that lies in `root`."""
    text, name = markdown(path), repository.split("/")[1]
    found = [f"link {link}" for link in broken(path, text)]
    for line in lines(text):
        found += [
            line
            for goal in re.findall(r"^make ([a-z][\w-]*)", line.strip())
            if not is_made(root, goal)
        ]
        asked = re.findall(r"course\.py ([a-z-]+)", line)
        found += [line for command in asked if command not in commands(root)]
        for module in re.findall(r"-m ((?:tools|dspark_lite)[\w.]*)", line):
            file = root / module.replace(".", "/")
            found += [] if file.is_dir() or file.with_suffix(".py").exists() else [line]
    for block in ["".join(parts) for parts in BLOCK.findall(text)]:
        found += walked(root, block, name)
    for place in PLACE.findall(text):
        if not (ANY.search(place) or (path.parent / place).exists() or list(root.glob(place))):
            found.append(f"path {place}")
    address = rf"(?:github\.com|google\.com/github)/{re.escape(repository)}/(?:blob|tree)/[^/]+/([\w./-]*\w)"
    hub = rf"lab/tree/{re.escape(name)}/([\w./-]*\w)"
    found += [
        f"address {place}"
        for place in re.findall(address, text) + re.findall(hub, text)
        if not (root / place).exists()
    ]
    found += [line for line in re.findall(r"lab/tree/[\w-]+", text) if line != f"lab/tree/{name}"]
    return found


def walked(root, block, name) -> list[str]:
    """Return the `cd` of a block of commands that leads nowhere: from the clone's root, or from beside the clone once the
    block has cloned."""
    found, beside = [], None
    for word in re.findall(r"git clone ([^\n&]+)|\bcd ([^\s&]+)", block):
        clone, folder = word[0].split("#")[0].split(), word[1]
        if clone:
            given = [part for part in clone if not part.startswith("-") and not part.isdigit()]
            beside = given[1] if len(given) > 1 else given[0].rpartition("/")[2]
            continue
        inside = folder.removeprefix(f"{beside}/") if beside else folder
        if folder not in (beside, "..") and (
            inside == folder and beside or not (root / inside).exists()
        ):
            found.append(f"cd {folder}")
    return found
