"""What makes the web edition's pages light: one script, only the styles that are used, text before scripts, pictures when they
are near."""

import re
import shutil
from functools import partial
from pathlib import Path

from PIL import Image

from dspark_lite.common.files import ROOT, write_text
from tools.site import pages

HERE = Path(__file__).parent
SCRIPTS = ROOT / "build" / "site" / "scripts"  # page.js and scorer.js, made of those in scripts/
# What a page loads and does not need: the theme's script of 1.5 MB that draws a dozen icons (course.css
# draws them), what it fetches before it is asked for, and the search, which has a page.
UNUSED = re.compile(r"<(script|link)[^>]*(?:fontawesome|rel=\"preload\")[^>]*>(</script>)?")
SEARCH = re.compile(
    r"<script src=\"[^\"]*(?:searchtools|language_data|searchindex)\.js\"></script>"
)
SCRIPT = re.compile(r"<script(?! data-cfasync)[^>]*>.*?</script>", re.S)
RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
OPTIONAL = re.compile(r":(?:is|where|not|has)\([^()]*\)|\"[^\"]*\"")
CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)")
PICTURE = re.compile(r"<img (?=[^>]*src=\"([^\"]*\.png)\")(?![^>]*width)")
PLACE = re.compile(r"^import (?:\* as )?(.*?) from \"\./(\w+)\.js\";$", re.M)


def bundle(first: str) -> str:
    """Return a module of JavaScript and all that it imports as one script, which a browser also runs in a
    page that was opened from disk: from there it loads no modules."""
    folders = [HERE / "scripts", *{path.parent for path in pages.PLAYERS}]
    done = {}

    def add(name: str) -> None:
        (path,) = [folder / f"{name}.js" for folder in folders if (folder / f"{name}.js").exists()]
        text = path.read_text(encoding="utf-8")
        for _, imported in PLACE.findall(text):
            if imported not in done:
                add(imported)
        text = PLACE.sub(
            lambda found: f"const {found[1].replace(' as ', ': ')} = modules.{found[2]};", text
        )
        given = re.findall(r"^export (?:const|function) (\w+)", text, re.M)
        text = re.sub(r"^export (?!default)", "", text, flags=re.M)
        text = re.sub(r"^export default", "const inNotebooks =", text, flags=re.M)
        done[name] = f"modules.{name} = (() => {{\n{text}return {{ {', '.join(given)} }};\n}})();\n"

    add(first)
    return '"use strict";\n(() => {\nconst modules = {};\n' + "".join(done.values()) + "})();\n"


def lighten(target: Path) -> None:
    """Have each page show its text before its scripts are there, and its pictures when they are near."""
    for path in target.rglob("*.html"):
        page = UNUSED.sub("", path.read_text(encoding="utf-8"))
        if path != target / "search.html":
            page = SEARCH.sub("", page)
        head, closing, body = page.partition("</head>")
        scripts = SCRIPT.findall(head)
        # a dark page is dark before its scripts are there
        head = SCRIPT.sub("", head).replace(
            'localStorage.getItem("theme") || "auto"',
            'localStorage.getItem("theme") || '
            '(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")',
        )
        body = PICTURE.sub(partial(sized, path.parent), body)
        before, end, after = body.rpartition("</body>")
        write_text(path, "".join([head, closing, before, *scripts, end, after]))
    for script in (target / "_static" / "scripts").glob("fontawesome*"):
        script.unlink()
    shutil.rmtree(target / "_static" / "vendor")
    named = set()
    for path in [*target.rglob("*.html"), *(target / "_static").rglob("*.js")]:
        named.update(re.findall(r"[\w-]+", path.read_text(encoding="utf-8")))
    for sheet in (target / "_static").rglob("*.css"):
        write_text(sheet, used_rules(sheet.read_text(encoding="utf-8"), named))


def used_rules(sheet: str, named: set[str]) -> str:
    """Return a style sheet without the rules for classes that no page and no script names: two thirds
    of the theme's, which a page waits for."""

    def used(selector: str) -> bool:
        classes = CLASS.findall(OPTIONAL.sub("", selector))
        # bootstrap.js puts its names together
        return all(name in named or name.startswith("bs-") for name in classes)

    def kept(rule):
        if "@" in rule[1]:
            return "" if "fontawesome" in rule[2] else rule[0]
        selectors = [part for part in re.split(r",(?![^(]*\))", rule[1]) if used(part)]
        return f"{','.join(selectors)}{{{rule[2]}}}" if selectors else ""

    return re.sub(r"@(?:media|supports)[^{}]*\{\s*\}", "", RULE.sub(kept, sheet))


def sized(folder: Path, found: re.Match) -> str:
    """Return the beginning of a picture's tag on a page in `folder`, with a size, so that the page
    stands still while the picture comes."""
    with Image.open(folder / found[1]) as image:
        return f'<img loading="lazy" width="{image.width}" height="{image.height}" '
