"""Sphinx's settings for the web edition; tools/site/build.py writes the source folder that they are
applied to."""

import html
import re

import nbformat
from docutils import nodes

from dspark_lite.common.about import REPOSITORY, VERSION
from dspark_lite.common.files import ROOT
from tools.site import pages
from tools.site.light import SCRIPTS

OWNER, NAME = REPOSITORY.split("/")
SHARED = f"https://{OWNER}.github.io/{NAME}/_images/round.png"  # the picture of a shared link
INPUT = '<div class="cell_input docutils container">'

project, author, version = "dspark-lite", "the dspark-lite authors", VERSION
project_copyright = "the dspark-lite authors, MIT licence"
extensions = [
    "myst_nb",
    "sphinx_copybutton",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx.ext.mathjax",
]
mathjax_path = "mathjax/tex-chtml.js"
html_theme = "sphinx_book_theme"
html_title, html_favicon = "dspark-lite", "static/favicon.svg"
STYLES = [path for path in pages.PLAYERS if path.suffix == ".css"]
html_static_path = ["static", *map(str, STYLES), str(SCRIPTS / "page.js")]
html_css_files = ["course.css", *(path.name for path in STYLES)]
html_js_files = [("page.js", {"defer": "defer"})]
html_search_scorer = str(SCRIPTS / "scorer.js")
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
html_show_sourcelink, html_copy_source, html_show_sphinx = False, False, False
html_theme_options = {
    "use_download_button": False,
    "repository_url": f"https://github.com/{REPOSITORY}",
    "use_repository_button": True,
    "show_toc_level": 2,
    "max_navbar_depth": 1,
    "navbar_persistent": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}

nb_execution_mode = "off"  # the committed outputs are shown
nb_render_markdown_format = "myst"  # outputs have tables, too
nb_mime_priority_overrides = [("html", "text/html", 0)]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_dmath_double_inline = True  # $$ formulas inside a paragraph, as Jupyter and GitHub take them
suppress_warnings = ["mystnb.mime_priority", "misc.highlighting_failure"]

smartquotes_action = "qe"  # quotes and dots; two hyphens begin an option
default_role = "literal"  # docstrings write `name`
add_module_names = False
toc_object_entries = False  # every page carries the table of contents
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
viewcode_follow_imported_members = False


def as_text(app, what, name, obj, options, lines):
    """Escape what reStructuredText would read as markup in a docstring: asterisks, bars,
    underscores."""
    # The fields of a named tuple, which its docstring explains.
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()
    lines[:] = [
        "`".join(
            part if place % 2 else re.sub(r"([*|_@\\])", r"\\\1", part)
            for place, part in enumerate(line.split("`"))
        )
        for line in lines
    ]


def is_borrowed(app, what, name, obj, skip, options):
    """Return True for members that a class inherits from PyTorch or matplotlib, so that Sphinx skips
    them; their docstrings have another markup."""
    return True if getattr(obj, "__module__", "").startswith(("torch.", "matplotlib.")) else None


def link_lesson(app, pagename, templatename, context, doctree):
    """Link the names in a lesson's code with their place in the reference."""
    source = ROOT / f"{pagename}.ipynb"
    if not source.exists():
        return
    notebook = nbformat.read(source, as_version=4)
    notebook.cells = [
        cell for cell in notebook.cells if not pages.LEFT_OUT & set(cell.metadata.get("tags", []))
    ]
    python = app.env.get_domain("py")
    places = {
        name: f"{app.builder.get_relative_uri(pagename, entry.docname)}#{entry.node_id}"
        for name, entry in [*python.objects.items(), *python.modules.items()]
    }
    start, *blocks = context["body"].split(INPUT)
    linked = [
        pages.with_references(block, names, places)
        for block, names in zip(blocks, pages.known_names(notebook), strict=True)
    ]
    context["body"] = INPUT.join([start, *linked])


def words(paragraph) -> str:
    """Return a paragraph's words without markup, "" for the doors of a lesson."""
    texts = [
        text for text in paragraph.findall(nodes.Text) if not isinstance(text.parent, nodes.raw)
    ]
    said = " ".join("".join(texts).split())
    return "" if said.startswith("Open in Colab") else said


def describe(app, pagename, templatename, context, doctree):
    """Say in a page's head what it is about, for whoever shares or searches it."""
    if doctree is None:
        return
    about = next(filter(None, map(words, doctree.findall(nodes.paragraph))), "")
    about = html.escape(about[:200])
    titled = html.escape(f"{context.get('title', project)} · {project}")
    context["metatags"] = context.get("metatags", "") + (
        f'<meta name="description" content="{about}">'
        f'<meta property="og:title" content="{titled}">'
        f'<meta property="og:description" content="{about}">'
        f'<meta property="og:image" content="{SHARED}">'
    )


def setup(app):
    """Connect these functions with Sphinx, which calls this."""
    app.connect("html-page-context", describe)
    app.connect("autodoc-process-docstring", as_text)
    app.connect("autodoc-skip-member", is_borrowed)
    app.connect("html-page-context", link_lesson)
