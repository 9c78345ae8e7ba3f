"""The web edition in a real Chromium: `make test-site` builds it and runs this file; `make test` does not collect it.
test_site.py asks the playground's rules without a browser.

Every page is opened at the width of a desktop and of a phone, and its pictures are kept in build/site/screenshots.
"""

import functools
import http.server
import json
import re
import threading
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from chromium import CHROMIUM, QUIET
from playwright.sync_api import sync_playwright

from tools.site.build import PAGES

PATIENCE = 60_000  # milliseconds
SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
PICTURES = PAGES.parent / "screenshots"
FOUND = (path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*.html"))
# the theme's templates lie there
EVERY = sorted(page for page in FOUND if not page.startswith("_static/"))
# of the package, all alike: two of them are opened
SOURCES = [page for page in EVERY if page.startswith("_modules/")]
OPENED = [page for page in EVERY if page not in SOURCES] + SOURCES[:2]
WITH_WIDGETS = [
    page for page in EVERY if 'class="course-widget"' in (PAGES / page).read_text(encoding="utf-8")
]
WITH_ROUNDS = [
    page for page in EVERY if 'course-round"' in (PAGES / page).read_text(encoding="utf-8")
]
SERIOUS = {"serious", "critical"}
# What can be worked by hand in a page's own part, and is seen.
CONTROLS = ":is(article, .bd-search-container) :is(a[href], button, input, select, summary)"
TAB_LIMIT = 900


@pytest.fixture(scope="module")
def address():
    """The address of a server of the pages on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(PAGES))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
    """A Chromium without a network."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, address):
    """Opens a page: visit(page, size, scheme); whatever goes wrong in it is told at the end of the test."""
    contexts, wrong = [], []

    def opened(page, size="desktop", scheme="light", **options):
        context = browser.new_context(viewport=SIZES[size], color_scheme=scheme, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(PATIENCE)
        tab.on("console", lambda message: message.type == "error" and wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        # without them Chromium gives up those that it has begun to fetch
        scripts = options.get("java_script_enabled", True)
        tab.on("requestfailed", lambda request: scripts and wrong.append(f"failed: {request.url}"))
        tab.on(
            "response",
            lambda response: (
                response.status >= 400 and wrong.append(f"{response.status}: {response.url}")
            ),
        )
        tab.on(
            "request",
            lambda request: (
                request.url.startswith((address, "data:", "blob:"))
                or wrong.append(f"foreign: {request.url}")
            ),
        )
        tab.goto(address + page, wait_until="load")
        if scripts:
            tab.evaluate("() => window.MathJax?.startup?.promise")
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def findings(tab):
    """What axe-core finds serious or worse in a page."""
    tab.evaluate(AXE_FILE_PATH.read_text(encoding="utf-8"))
    found = tab.evaluate("() => axe.run({ resultTypes: ['violations'], preload: false })")[
        "violations"
    ]
    return [
        f"{one['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("page", OPENED)
def test_a_page_opens_without_an_error_and_axe_finds_nothing_serious(visit, page):
    tab = visit(page)
    PICTURES.mkdir(parents=True, exist_ok=True)
    tab.screenshot(
        path=PICTURES / f"{page.replace('/', '-').removesuffix('.html')}-desktop.png",
        full_page=True,
        animations="disabled",
    )
    assert findings(tab) == []


@pytest.mark.parametrize("page", OPENED)
def test_a_page_fits_a_phone_in_the_dark(visit, page):
    tab = visit(page, "phone", "dark")
    tab.screenshot(
        path=PICTURES / f"{page.replace('/', '-').removesuffix('.html')}-phone.png",
        full_page=True,
        animations="disabled",
    )
    assert tab.evaluate("() => document.documentElement.scrollWidth - window.innerWidth") <= 0
    if not page.startswith(("reference/", "_modules/")):
        assert findings(tab) == []


class Links(HTMLParser):
    """The addresses in a page and the names that others may lead to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.names |= {found[key] for key in ("id", "name") if found.get(key)}
        self.links += [found[key] for key in ("href", "src") if found.get(key)]


@functools.cache
def parsed(page):
    """A page's links and names."""
    return Links((PAGES / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", EVERY)
def test_every_internal_link_leads_somewhere(page):
    broken = []
    for link in parsed(page).links:
        if re.match(r"[a-z]+:|//", link):
            continue
        where, name = urldefrag(urljoin(f"/{page}", link))
        target = unquote(where.partition("?")[0]).lstrip("/")
        named = not name or name == "top" or not target.endswith(".html")
        if not (PAGES / target).is_file() or not (named or name in parsed(target).names):
            broken.append(link)
    assert broken == []


def picture(place):
    """What a drawing shows at the moment."""
    return place.locator(".picture").inner_html()


def moved(place, control) -> bool:
    """Whether the picture changes when a control is moved by keys, one way or the other."""
    before = picture(place)
    control.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowLeft", "ArrowUp", "ArrowUp"):
        control.press(key)
        if picture(place) != before:
            return True
    return False


def test_most_lessons_play_a_round_and_some_have_controls():
    assert len(WITH_WIDGETS) >= 4 and len(WITH_ROUNDS) >= 12


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", WITH_WIDGETS)
def test_a_control_is_moved_and_the_picture_changes(visit, page, size):
    tab = visit(page, size)
    for place in tab.locator(".course-widget").all():
        assert (
            place.is_visible()
            and not place.locator("xpath=../..").locator("img").first.is_visible()
        )
        controls = place.locator(".controls :is(input, select)").all()
        assert len(controls) >= 3
        assert [
            control.get_attribute("name") for control in controls if not moved(place, control)
        ] == []
        assert (
            place.locator(".picture").get_attribute("aria-label")
            == place.locator(".said").inner_text()
        )
        place.scroll_into_view_if_needed()
        place.screenshot(path=PICTURES / f"widget-{page.split('/')[-1][:2]}-{size}.png")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", WITH_ROUNDS)
def test_a_round_is_stepped_and_scrubbed_by_keys_and_plays(visit, page, size):
    tab = visit(page, size, "dark" if size == "phone" else "light")
    place = tab.locator(".course-round").first
    said, slider = place.locator(".says"), place.get_by_role("slider")
    assert place.is_visible() and not place.locator("xpath=../..").locator("img").first.is_visible()
    place.scroll_into_view_if_needed()
    place.screenshot(path=PICTURES / f"round-{page.split('/')[-1][:2]}-{size}.png")
    slider.focus()
    slider.press("Home")
    heard = [said.inner_text()]
    for key in ("ArrowRight", "ArrowRight", "End", "ArrowLeft"):
        slider.press(key)
        heard.append(said.inner_text())
    steps = 1 + int(slider.get_attribute("max"))
    assert len(set(heard)) == min(5, steps) and said.get_attribute("aria-live") == "polite"
    assert slider.get_attribute("aria-valuetext") == heard[-1]
    slider.press("Home")
    slider.press(" ")  # plays
    assert said.get_attribute("aria-live") == "off"
    tab.wait_for_function("(slider) => Number(slider.value) >= 2", arg=slider.element_handle())
    slider.press(" ")
    stopped = slider.input_value()
    tab.wait_for_timeout(2500)  # longer than any step
    assert slider.input_value() == stopped and said.get_attribute("aria-live") == "polite"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", WITH_ROUNDS)
def test_a_round_is_whole_in_its_page_and_moves_only_where_motion_is_wanted(visit, page, size):
    for motion in ("no-preference", "reduce"):
        tab = visit(page, size, reduced_motion=motion)
        place = tab.locator(".course-round").first
        sheet = place.locator(".stage svg").bounding_box()
        assert sheet["x"] >= 0 and sheet["x"] + sheet["width"] <= SIZES[size]["width"]
        letters = []
        for _ in range(
            2
        ):  # at the step that is shown first, which may have none, and at the first one
            letters += place.locator(".stage text").evaluate_all(
                "(texts) => texts.map((one) => one.getBoundingClientRect()).filter((one) => one.width)"
                ".map((one) => [one.left, one.right, one.height])"
            )
            place.get_by_role("slider").press("Home")
        scene = json.loads(place.locator("script").text_content())["numbers"]
        shapes = scene["rounds"][0]["drawings"][0]
        assert bool(letters) == any(shape["kind"] in ("text", "token") for shape in shapes)
        for left, right, height in letters:
            assert left >= sheet["x"] - 3 and right <= sheet["x"] + sheet["width"] + 3
            assert height >= 10
        place.get_by_role("button", name="one step on").click()
        seconds = place.locator(".stage rect").evaluate_all(
            "(boxes) => boxes.map((box) => parseFloat(getComputedStyle(box).transitionDuration))"
        )
        assert (max(seconds) > 0.3) == (motion == "no-preference")


@pytest.mark.parametrize("page", sorted({*WITH_WIDGETS, *WITH_ROUNDS}))
def test_without_scripts_the_still_picture_is_shown(visit, page):
    tab = visit(page, java_script_enabled=False)
    for place in tab.locator(".course-widget, .course-round").all():
        assert (
            not place.is_visible()
            and place.locator("xpath=../..").locator("img").first.is_visible()
        )


@pytest.mark.parametrize(
    "page", ["index.html", "playground.html", "search.html", *sorted({*WITH_WIDGETS, *WITH_ROUNDS})]
)
def test_every_control_is_reached_by_the_keyboard(visit, page):
    tab = visit(page)
    tab.evaluate(f"""() => {{
        const here = [...document.querySelectorAll("{CONTROLS}")].filter((one) => !one.disabled && one.tabIndex >= 0);
        const seen = here.filter((one) => one.checkVisibility({{ visibilityProperty: true }}));
        const first = (one) => seen.find((other) => other.name === one.name);  // arrows reach the others
        window.unreached = new Set(seen.filter((one) => one.type !== "radio" || one === first(one)));
        document.addEventListener("focusin", (event) => window.unreached.delete(event.target));
    }}""")
    assert tab.evaluate("() => window.unreached.size") > 0
    for _ in range(TAB_LIMIT):
        tab.keyboard.press("Tab")
        if not tab.evaluate("() => window.unreached.size"):
            break
    assert (
        tab.evaluate("() => [...window.unreached].map((one) => one.outerHTML.slice(0, 200))") == []
    )


def test_the_rule_commits_the_targets_distribution_and_the_mistake_does_not(visit):
    """20,000 draws from a fixed start of the page's generator: the distance is 0.007 for the rule, 0.12 for the mistake."""
    tab = visit("playground.html")
    place = tab.locator("#play-rule")

    def distance():
        for _ in range(2):
            place.get_by_role("button", name="Draw 10,000").click()
        return float(re.search(r"are (0\.\d+) away", place.locator(".said").inner_text())[1])

    assert distance() < 0.02
    place.get_by_role("checkbox").check()
    assert distance() > 0.05
    place.get_by_label("the, target p").fill("50")
    place.get_by_label("the, target p").press("Enter")
    assert "So far" not in place.locator(".said").inner_text()


def test_a_round_is_played_to_its_end(visit):
    tab = visit("playground.html")
    place = tab.locator("#play-round")
    for _ in range(3):
        for _ in range(5):  # three drafts and the target's own token at most
            if place.get_by_role("button", name="Another block").count():
                break
            place.get_by_role("button").first.click()
            assert re.match("Right: |Not so: ", place.locator(".said").inner_text())
        assert (
            "commits" in place.locator(".said").inner_text()
            and 1 < place.locator("li").count() + 1 <= 5
        )
        place.get_by_role("button", name="Another block").click()


def test_algorithm_1_follows_the_table_and_the_machine(visit):
    tab = visit("playground.html")
    place = tab.locator("#play-schedule")
    said = [place.locator(".said").inner_text()]
    place.get_by_label("request 2, 1").fill("0.1")
    place.get_by_label("request 2, 1").press("Enter")
    said.append(place.locator(".said").inner_text())
    place.locator("select").select_option(index=2)
    said.append(place.locator(".said").inner_text())
    assert len(set(said)) == 3 and re.search(r"Admitted: \d, 0, \d", said[1])


def test_a_bet_hides_its_answer_until_it_is_made_and_is_counted(visit):
    tab = visit("notebooks/00_start_here.html", "desktop", "light")
    places = tab.locator('[data-bet="00 shortest rounds"]')
    first, settled = places.nth(0), places.nth(1)
    assert "tokens per round" not in settled.inner_text()
    assert "No bet is settled yet" in tab.locator(".course-score").inner_text()
    first.get_by_text("a sum (math)").click()
    assert "You bet on" in first.inner_text() and "tokens per round" in settled.inner_text()
    assert settled.locator(".lost").count() == 1
    assert "0 of 1" in tab.locator(".course-score").inner_text()
    tab.reload()
    assert "tokens per round" in places.nth(1).inner_text()


@pytest.mark.parametrize("size", SIZES)
def test_the_race_writes_one_text_twice_and_says_how_it_ended(visit, size):
    tab = visit("index.html", size, "light")
    tab.emulate_media(reduced_motion="reduce")
    place = tab.locator(".course-race")
    for drafter in place.get_by_label("Drafter:").locator("option").all():
        place.get_by_label("Drafter:").select_option(drafter.get_attribute("value"))
        texts = place.locator(".lane").all_inner_texts()
        assert texts[0] == texts[1] and len(texts[0]) > 100
        assert "token for token" in place.locator(".ended").inner_text()


@pytest.mark.parametrize("size", SIZES)
def test_a_figure_is_not_cut_and_is_enlarged_by_a_tap(visit, size):
    tab = visit("notebooks/12_the_paper_in_miniature.html", size, "light")
    figures = tab.locator(".enlarge img")
    assert figures.count() > 3
    cut = "images => images.filter(i => i.getBoundingClientRect().right > innerWidth).length"
    assert figures.evaluate_all(cut) == 0
    tab.locator(".enlarge").first.click()
    assert tab.locator("dialog[open] img").is_visible()
    tab.keyboard.press("Escape")
    assert tab.locator("dialog[open]").count() == 0


def test_the_search_finds_a_lesson(visit):
    tab = visit("search.html?q=survival")
    tab.wait_for_selector("#search-results li a")
    assert tab.locator("#search-results a[href*='notebooks/']").count() > 0


def test_a_lesson_has_its_neighbours_doors_and_links_into_the_reference(visit):
    page = next(page for page in EVERY if page.startswith("notebooks/02_"))
    tab = visit(page)
    for name in ("Open in Colab", "Download the notebook", "Solutions"):
        assert tab.get_by_role("link", name=name).count() == 1
    assert tab.locator("a.left-prev").count() == tab.locator("a.right-next").count() == 1
    with tab.expect_download() as told:
        tab.get_by_role("link", name="Download the notebook").click()
    assert json.loads(told.value.path().read_text(encoding="utf-8"))["nbformat"] == 4
    tab.locator("a.in-reference[href*='reference/dspark_lite']").first.click()
    tab.wait_for_url("**/reference/**")
    assert tab.locator("a[href*='_modules/']").count() > 0
