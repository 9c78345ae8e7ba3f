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
from playwright.sync_api import sync_playwright

from chromium import CHROMIUM, QUIET
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


def pages_with(drawing):
    """The pages that have such a drawing."""
    return [page for page in EVERY if f'course-{drawing}"' in (PAGES / page).read_text("utf-8")]


WITH_FRAMES, WITH_ROUNDS = pages_with("frames"), pages_with("round")
WITH_DRAFTER, WITH_SCHEDULER = pages_with("drafter_game"), pages_with("scheduler_game")
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
    """Opens a page: visit(page, size, scheme), with `disk` from a file; whatever goes wrong in it is told at the end of
    the test."""
    contexts, wrong = [], []

    def opened(page, size="desktop", scheme="light", disk=False, **options):
        home = f"{PAGES.as_uri()}/" if disk else address
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
                request.url.startswith((home, "data:", "blob:"))
                or wrong.append(f"foreign: {request.url}")
            ),
        )
        tab.goto(home + page, wait_until="load")
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


# What a page is wider than, what of it is cut, which words are smaller than 9 pixels.
MISFITS = """() => {
    const wide = innerWidth, seen = (one) => one.checkVisibility({ visibilityProperty: true });
    const all = (kind) => [...document.querySelectorAll(`article ${kind}`)].filter(seen);
    const told = (one) => one.outerHTML.slice(0, 200);
    const cut = all(":is(img, svg)").filter((one) => one.getBoundingClientRect().right > wide + 1);
    const code = all("pre").filter((one) => one.scrollWidth > one.clientWidth + 1);
    const small = all(":not(:has(*), mjx-container *, svg *)").filter(
        (one) => one.textContent.trim() && parseFloat(getComputedStyle(one).fontSize) < 9);
    const page = document.documentElement.scrollWidth > wide ? ["the page"] : [];
    return [...page, ...[...cut, ...code, ...small].map(told)];
}"""
NEAR = """() => Promise.all([...document.images].map((image) => {
    image.loading = "eager";
    return image.checkVisibility() && image.decode();
}))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", OPENED)
def test_a_page_fits_opens_without_an_error_and_axe_finds_nothing_serious(
    visit, page, size, scheme
):
    tab = visit(page, size, scheme)
    tab.evaluate(NEAR)
    PICTURES.mkdir(parents=True, exist_ok=True)
    tab.screenshot(
        path=PICTURES / f"{page.replace('/', '-').removesuffix('.html')}-{size}-{scheme}.png",
        full_page=True,
        animations="disabled",
    )
    assert tab.evaluate(MISFITS) == []
    assert findings(tab) == []


@pytest.mark.parametrize("page", EVERY)
def test_a_page_paints_before_its_scripts_and_waits_for_little_style(page):
    head = (PAGES / page).read_text("utf-8").partition("</head>")[0]
    sheets = re.findall(r'<link[^>]* href="([^"?]+\.css)', head)
    assert "<script src" not in head and "<script defer" not in head
    assert sum(((PAGES / page).parent / sheet).stat().st_size for sheet in sheets) < 250_000


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


def test_most_lessons_play_a_round_and_some_have_a_slider_or_a_game():
    assert len(WITH_FRAMES) >= 5 and len(WITH_ROUNDS) >= 12
    assert len(WITH_DRAFTER) == len(WITH_SCHEDULER) == 2  # a lesson and the playground


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", WITH_FRAMES)
def test_a_slider_shows_another_frame_and_a_tap_enlarges_it(visit, page, size):
    tab = visit(page, size)
    for place in tab.locator(".course-frames").all():
        still = place.locator("xpath=../../*[contains(@class, 'enlarge')]/img")
        assert place.is_visible() and not still.first.is_visible()
        slider, image = place.get_by_role("slider"), place.locator(".enlarge img")
        slider.press("Home")
        seen = [image.get_attribute("src")]
        for _ in range(int(slider.get_attribute("max"))):
            slider.press("ArrowRight")
            seen.append(image.get_attribute("src"))
            said = place.locator("output").inner_text()
            assert slider.get_attribute("aria-valuetext") == image.get_attribute("alt") == said
        assert len(set(seen)) == len(seen) >= 5
        assert image.bounding_box()["width"] <= SIZES[size]["width"]
        place.locator(".enlarge").click()
        assert tab.locator("dialog[open] img").get_attribute("src") == seen[-1]
        tab.keyboard.press("Escape")
        place.scroll_into_view_if_needed()
        place.screenshot(path=PICTURES / f"frames-{page.split('/')[-1][:2]}-{size}.png")


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
        # At the step that is shown first, which may have none, and at the first one.
        for _ in range(2):
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


@pytest.mark.parametrize("page", sorted({*WITH_FRAMES, *WITH_ROUNDS}))
def test_without_scripts_the_still_picture_is_shown(visit, page):
    tab = visit(page, java_script_enabled=False)
    for place in tab.locator(".course-frames, .course-round").all():
        assert (
            not place.is_visible()
            and place.locator("xpath=../..").locator("img").first.is_visible()
        )


@pytest.mark.parametrize(
    "page", ["index.html", "playground.html", "search.html", *sorted({*WITH_FRAMES, *WITH_ROUNDS})]
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


@pytest.mark.parametrize("size", SIZES)
def test_the_rule_is_found_and_only_with_what_is_owed(visit, size):
    tab = visit("playground.html", size)
    place = tab.locator("#play-rule")
    said = place.get_by_role("status")
    assert "0.40 away" in said.inner_text()  # everything is kept
    place.get_by_label("keep chance of the").fill("0.2")
    assert "have the target's distribution. No rule keeps more" in said.inner_text()
    place.get_by_role("checkbox").check()
    assert "away" in said.inner_text()
    place.get_by_role("checkbox").uncheck()
    place.get_by_label("the, target p").fill("0")
    place.get_by_label("the, target p").press("Enter")
    assert "away" in said.inner_text()
    place.get_by_role("button", name="Show the rule").click()
    assert "have the target's distribution. No rule keeps more" in said.inner_text()
    for word in ("a", "my", "its"):
        place.get_by_label(f"{word}, target p").fill("-3")
        place.get_by_label(f"{word}, target p").press("Enter")
    assert "All weights of the target p are 0" in said.inner_text()
    assert place.get_by_role("button", name="Draw one word").is_disabled()


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_a_slow_draw_tells_offer_coin_verdict_and_replacement(visit, motion):
    tab = visit("playground.html", reduced_motion=motion)
    place = tab.locator("#play-rule")
    for word in ("the", "a", "my", "its"):
        place.get_by_label(f"keep chance of {word}").fill("0")
    place.get_by_role("button", name="Draw one word").click()
    assert (place.locator("li").count() == 4) == (motion == "reduce")
    place.locator("li").nth(3).wait_for()
    lines = place.locator("li").all_inner_texts()
    for line, words in zip(lines, ("draws", "coin", "refused", "in its place")):
        assert words in line


def is_whole(tab, place, size):
    """Assert that nothing of a game is cut or smaller than 9 pixels; keep its picture."""
    wide = tab.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= SIZES[size]["width"]
    edge = place.bounding_box()["x"] + place.bounding_box()["width"]
    for right, letters in place.locator(":not(:has(*))").evaluate_all(
        "(all) => all.filter((one) => one.textContent.trim())"
        ".map((one) => [one.getBoundingClientRect().right, parseFloat(getComputedStyle(one).fontSize)])"
    ):
        assert right <= edge and letters >= 9
    place.scroll_into_view_if_needed()
    page = tab.url.rpartition("/")[2][:2]
    place.screenshot(path=PICTURES / f"game-{place.get_attribute('class')[-9:]}-{page}-{size}.png")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", WITH_DRAFTER)
def test_a_reader_drafts_by_the_keyboard_until_the_rounds_end(visit, page, size):
    tab = visit(page, size)
    place = tab.locator(".course-drafter_game")
    said, field = place.get_by_role("status"), place.get_by_role("textbox")
    field.press("Enter")
    assert "Type a word" in said.inner_text()
    field.fill("IT was the age, of it")
    field.press("Enter")
    assert "3 of 6 kept" in said.inner_text() and "“epoch”" in said.inner_text()
    assert place.locator(".kept").count() == 3
    assert place.locator(".refused").all_inner_texts() == ["age,"]
    assert place.locator(".void").count() == 2
    assert place.locator(".bars > span").nth(2).inner_text() == "4.00"
    is_whole(tab, place, size)
    for number in range(2, 13):
        field.fill("of")
        field.press("Enter")
        assert f"Round {number} of 12" in said.inner_text()
    assert "The end" in said.inner_text() and field.is_disabled()
    place.get_by_role("button", name="Start anew").click()
    assert field.is_enabled() and place.locator(".kept, .added").count() == 0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", WITH_SCHEDULER)
def test_a_reader_schedules_honestly_and_then_peeks(visit, page, size):
    tab = visit(page, size)
    place = tab.locator(".course-scheduler_game")
    scene = json.loads(place.locator("script").text_content())["numbers"]
    said = place.get_by_role("status")

    def play(way, peeking):
        for step in scene["steps"]:
            if peeking:
                place.get_by_role("button", name="Peek").click()
            for request, length in enumerate(step[way], start=1):
                if length:
                    name = re.compile(f"^request {request}, draft {length},")
                    place.get_by_role("button", name=name).press("Enter")
            place.get_by_role("button", name="Run the step").click()
            place.get_by_role("button", name=re.compile("Next step|Play again")).focus()
            if step is not scene["steps"][-1]:
                place.get_by_role("button", name="Next step").click()
        bars = place.locator(".bars > span").all_inner_texts()
        return [float(re.match(r"[\d.]+", bars[k])[0]) for k in (2, 5, 8, 11)]

    mine, algorithm, kept, zero = play("lengths", False)
    assert mine == algorithm and kept < 0.9 and abs(zero - 0.7) < 0.03
    assert "never peeked" in said.inner_text()
    place.get_by_role("button", name="Play again").click()
    mine, algorithm, kept, zero = play("accepted", True)
    assert mine > 1.1 * algorithm and kept == 1 and abs(zero - 0.85) < 0.03
    assert "writes another text" in said.inner_text()
    is_whole(tab, place, size)


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


FOUND_BY = {"residual": "02_", "Survival": "09_", "confidence": "09_", "accepted lengths": "00_"}


@pytest.mark.parametrize("disk", [False, True])
@pytest.mark.parametrize("word", FOUND_BY)
def test_the_search_finds_the_lesson_that_defines_a_word_before_the_glossary(visit, word, disk):
    tab = visit(f"search.html?q={word}", disk=disk)
    tab.wait_for_function(
        "() => document.querySelector('#search-results .search-summary')?.innerText.includes('inished')"
    )
    found = [link.get_attribute("href") for link in tab.locator("#search-results li > a").all()]
    assert found[0].startswith(f"notebooks/{FOUND_BY[word]}")
    assert found.index("docs/glossary.html") == 1
    assert tab.locator(".from-disk").count() == disk
    assert (tab.locator("#search-results .context").count() == 0) == disk


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "page", ["index.html", "playground.html", "cases.html", "bets.html", *WITH_FRAMES]
)
def test_a_page_opened_from_disk_plays(visit, page, size):
    tab = visit(page, size, disk=True)
    places = tab.locator(".course-own")
    assert (
        places.count() == tab.locator(".course-own:visible, .cell [hidden] .course-own").count() > 0
    )
    assert tab.locator("a[download]").count() == tab.locator(".from-disk").count()


@pytest.mark.parametrize("size", SIZES)
def test_a_citation_is_shown_by_pointer_and_keyboard_until_escape(visit, size):
    tab = visit("docs/history.html", size)
    link = tab.locator("a[aria-description*='Fast Inference from Transformers']").first
    shown = "(link) => getComputedStyle(link, '::after').content.includes('2022')"
    assert not link.evaluate(shown)
    link.hover()
    assert link.evaluate(shown)
    left, right = link.evaluate(
        "(link) => [parseFloat(getComputedStyle(link, '::after').left), parseFloat(getComputedStyle(link, '::after').right)]"
    )
    assert left == right == 0  # as wide as the paragraph
    tab.keyboard.press("Escape")
    assert not link.evaluate(shown)
    tab.mouse.move(0, 0)
    tab.locator("body").press("Tab")
    link.focus()
    assert link.evaluate(shown)


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
