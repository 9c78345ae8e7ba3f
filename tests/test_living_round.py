"""The living round: its data are what `generate` did, its scene says and draws them, and a picture stands where nothing moves."""

import base64
import io
import json
import re
from dataclasses import replace

import matplotlib.pyplot as plt
import nbformat
import pytest
from matplotlib.colors import to_rgb
from nbclient import NotebookClient

import dspark_lite
from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import ROOT
from dspark_lite.course.figures import living_round as shown, widgets
from dspark_lite.course.figures.round_layers import LAYERS, overlap
from dspark_lite.course.figures.round_scene import round_scene
from dspark_lite.course.figures.round_stage import STILL, look_at, still
from dspark_lite.course.figures.step_scene import (
    STEP_LAYERS,
    budget_scene,
    made_up_table,
    ragged_scene,
    survivals,
)
from dspark_lite.course.figures.widgets import WEB, WIDGET_VIEW
from dspark_lite.course.measure.recorded_rounds import (
    RecordedRound,
    as_json,
    record_rounds,
    recorded_rounds,
)
from dspark_lite.scheduling.policies import schedule
from tools.measure.rounds import recorded

DRAFTERS = ("dspark", "dflash", "small_lm", "eagle3")


@pytest.fixture(scope="module")
def sampled():
    """The recorded rounds of an answer that was drawn: one refused early, one late, one accepted whole."""
    return recorded_rounds("sampled")


@pytest.mark.parametrize("name", DRAFTERS)
def test_the_data_are_what_generate_did(tiny_lab, name):
    lab, most = tiny_lab, 40
    drafter, request = lab.drafter(name), lab.prompts["chat"][0]
    found = record_rounds(lab, drafter, request, max_new_tokens=most)
    answer = dspark_lite.generate(
        lab.target,
        drafter,
        lab.encode(request),
        max_new_tokens=most,
        temperature=1.0,
        generator=lab.generator(0),
    )

    def words(tokens):
        return [lab.tokenizer.decode([token]) for token in tokens]

    played = [(words(r.draft_tokens), r.accepted, words(r.tokens)) for r in answer.rounds]
    first = next(k for k, (drafts, accepted, _) in enumerate(played) if 0 < accepted < len(drafts))
    assert len(found) == 3
    for r, (drafts, accepted, tokens) in zip(found, played[first:]):
        assert [draft.text for draft in r.drafts] == drafts and r.accepted == accepted
        assert drafts[:accepted] + [r.added] == tokens
    for before, after in zip(found, found[1:]):
        assert before.added == after.anchor


def test_coins_and_probabilities_decide_as_the_rule_says(sampled):
    for r in sampled:
        for k, draft in enumerate(r.drafts):
            judged = k <= r.accepted
            assert draft.kept == (draft.coin < min(1, draft.p / draft.q) if judged else None)
            kept, refused, owed = draft.rest
            assert sum(q for _, _, q, _ in draft.top) + kept + refused == pytest.approx(1, abs=2e-3)
            assert sum(p for _, p, _, _ in draft.top) + kept + owed == pytest.approx(1, abs=2e-3)
            assert draft.text in [row[0] for row in draft.top]
        if r.accepted < len(r.drafts):
            p, q = next(row[1:3] for row in r.drafts[r.accepted].top if row[0] == r.added)
            assert p > q and not r.bonus
        else:
            assert r.added in [text for text, _ in r.bonus]


def test_the_caches_hold_what_was_committed(tiny_lab):
    lab = tiny_lab
    for r in record_rounds(lab, lab.drafter("small_lm"), lab.prompts["chat"][0], max_new_tokens=40):
        before, full, after = r.caches["target"]
        assert full == before + 1 + len(r.drafts) and after == before + 1 + r.accepted
        assert r.caches["drafter"][2] == min(after, r.caches["drafter"][1])


def test_the_recorded_file_is_what_the_models_say_today(tiny_lab):
    for name, rounds in recorded(tiny_lab).items():
        today, kept = [RecordedRound.of(stored) for stored in rounds], recorded_rounds(name)
        assert [_words(r) for r in today] == [_words(r) for r in kept]
        for draft, stored in zip(today[0].drafts, kept[0].drafts):
            assert [draft.p, draft.q] == pytest.approx([stored.p, stored.q], rel=0.01, abs=1e-4)


def _words(r):
    """What a round says in words."""
    return r.before, r.anchor, [draft.text for draft in r.drafts], r.accepted, r.added


def test_a_record_goes_through_json(sampled):
    stored = json.loads(json.dumps(as_json(sampled)))
    assert [RecordedRound.of(one) for one in stored] == sampled


def rounds_of(layer):
    """The recorded rounds that a layer is shown with."""
    return recorded_rounds("sick" if layer == "left" else "sampled")


@pytest.mark.parametrize("layer", LAYERS)
def test_a_scene_is_whole_and_its_colours_are_known(layer):
    sampled = rounds_of(layer)
    scene = round_scene(layer, sampled)
    json.dumps(scene)
    assert len(scene["pages"]) == 2 and scene["pages"][1][0] <= 350 < 700 < scene["pages"][0][0]
    for r, drawn in zip(sampled, scene["rounds"]):
        said = " ".join(step["say"] for step in drawn["steps"])
        assert all(300 <= step["ms"] <= 4000 and step["say"] for step in drawn["steps"])
        assert r.added.strip() in said
        for (width, height), shapes in zip(scene["pages"], drawn["drawings"]):
            for shape in shapes:
                looks = [shape, *(change for _, change in shape["at"])]
                roles = {look[key] for look in looks for key in ("fill", "stroke") if key in look}
                assert roles <= STILL.keys()
                assert all(0 <= step < len(drawn["steps"]) for step, _ in shape["at"])
                if shape["kind"] in ("rect", "token"):
                    assert 0 <= shape["x"] and shape["x"] + shape["width"] <= width
                    assert 0 <= shape["y"] and shape["y"] + shape["height"] <= height + 1


def test_the_losses_bars_are_the_chances_to_be_kept(sampled):
    for r in sampled:
        for draft in r.drafts:
            area = sum(q for _, _, q, _ in draft.top) + draft.rest[0] + draft.rest[1]
            refused = sum(max(q - p, 0) for _, p, q, _ in draft.top) + draft.rest[1]
            assert overlap(draft) == pytest.approx(area - refused, abs=2e-3)


def test_what_stays_in_a_sick_cache_is_what_no_committed_token_owns():
    for r in recorded_rounds("sick"):
        over = r.caches["drafter"][2] - r.caches["target"][2]
        shapes = round_scene("left", [r])["rounds"][0]["drawings"][0]
        (words,) = [s["words"] for s in shapes if "nobody" in str(s.get("words"))]
        assert over > 0 and words.startswith(f"{over} ")
    healthy = round_scene("left", recorded_rounds("sampled"))["rounds"][0]["drawings"][0]
    assert not [s for s in healthy if "nobody" in str(s.get("words"))]


def test_the_scene_shows_the_refusal_and_then_what_was_committed(sampled):
    r, scene = sampled[0], round_scene("words", sampled)
    shapes, last = scene["rounds"][0]["drawings"][0], len(scene["rounds"][0]["steps"]) - 1
    texts = [draft.text for draft in r.drafts]

    def opacity(text, step):
        (shape,) = [
            one for one in shapes if one["kind"] == "token" and one["words"] == text.strip()
        ]
        return look_at(shape, step)["opacity"]

    assert r.accepted == 2
    at_telling = [opacity(text, scene["telling"]) for text in texts]
    assert at_telling == [1, 1, 1] + [0.35] * 4
    committed = [opacity(text, last - 1) for text in texts]
    assert committed == [1, 1, 0, 0, 0, 0, 0] and opacity(r.added, last - 1) == 1
    assert [opacity(text, last) for text in texts] == [0] * 7 and opacity(r.added, last) == 1
    assert max(opacity(text, 0) for text in texts) == 0


def test_a_refusal_lasts_and_is_seen(sampled):
    steps = round_scene("words", sampled)["rounds"][0]["steps"]
    refusal = next(step for step in steps if "refused." in step["say"])
    assert refusal["ms"] >= 2 * max(step["ms"] for step in steps if step["say"].endswith("kept."))


def test_the_style_sheet_has_the_colours_of_the_house():
    css = (shown.HERE / "elements.css").read_text(encoding="utf-8")
    light, dark = css.split('html[data-theme="dark"]')
    found = dict(re.findall(r"--([\w-]+): (\S+);", light))
    assert {role: colour.lower() for role, colour in STILL.items()} == found
    assert set(re.findall(r"--([\w-]+): #", dark)) == STILL.keys() - {"none"}


def contrast(one, other):
    """The contrast of two colours, as WCAG computes it."""

    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_letters_and_edges_stand_out_on_both_pages(theme):
    css = (shown.HERE / "elements.css").read_text(encoding="utf-8")
    part = css.split('html[data-theme="dark"]')[theme]
    colour = dict(re.findall(r"--([\w-]+): (#\w+);", part))
    for face in ("paper", "kept-box", "refused-box", "added-box", "sky"):
        assert contrast(colour["ink"], colour[face]) >= 4.5
    assert contrast(colour["soft"], colour["paper"]) >= 4.5
    assert all(
        contrast(colour[edge], colour["paper"]) >= 3
        for edge in ("kept", "refused", "added", "line")
    )


@pytest.fixture
def displayed(monkeypatch):
    """What is displayed, and the metadata."""
    found = []
    monkeypatch.setattr(
        widgets, "display", lambda data, raw=False, metadata=None: found.append((data, metadata))
    )
    return found


def test_one_output_has_a_player_and_a_picture(displayed, sampled):
    pytest.importorskip("anywidget")
    widget = shown.living_round("coins", sampled)
    ((faces, metadata),) = displayed
    assert faces[WIDGET_VIEW]["model_id"] == widget.model_id and metadata == {}
    assert "commits 3 tokens: 2 drafts, and one of the target's own." in faces["text/plain"]
    image = plt.imread(io.BytesIO(base64.b64decode(faces["image/png"])))[..., :3]
    for role in ("kept-box", "refused-box", "added-box"):
        away = abs(image - to_rgb(STILL[role])).max(-1)
        assert away.min() < 0.02, role
    assert "export default" in str(widget._esm) and not plt.get_fignums()


def test_without_anywidget_the_picture_stands_and_the_lesson_goes_on(
    displayed, sampled, monkeypatch
):
    monkeypatch.setattr(widgets, "anywidget", None)
    assert shown.living_round("words", sampled) is None
    ((faces, _),) = displayed
    assert set(faces) == {"image/png", "text/plain"}


def test_the_build_stores_the_scene_for_the_web_edition(displayed, sampled, monkeypatch):
    monkeypatch.setenv("DSPARK_BUILD", "1")
    shown.living_round("words", sampled)
    stored = json.loads(displayed[0][1][WEB])
    assert stored == {
        "drawing": "living_round",
        "numbers": json.loads(json.dumps(round_scene("words", sampled))),
    }
    assert displayed[0][1][WEB].startswith('{"drawing":"living_round"')


@pytest.fixture(scope="module")
def step():
    """One recorded round of each of four requests."""
    return recorded_rounds("step")


@pytest.mark.parametrize("layer", STEP_LAYERS)
def test_a_scene_of_a_step_is_whole(step, layer):
    scene = STEP_LAYERS[layer](step)
    (shown_round,) = scene["rounds"]
    assert 0 <= scene["telling"] < len(shown_round["steps"])
    assert scene["told"].endswith(shown_round["steps"][-1]["say"])
    for (width, height), shapes in zip(scene["pages"], shown_round["drawings"]):
        for shape in shapes:
            looks = [shape, *(change for _, change in shape["at"])]
            roles = {look[key] for look in looks for key in ("fill", "stroke") if key in look}
            assert roles <= STILL.keys()
            if shape["kind"] in ("rect", "token"):
                assert shape["x"] >= 0 and shape["x"] + shape["width"] <= width + 0.1
                assert shape["y"] >= 0 and shape["y"] + shape["height"] <= height + 0.1
    assert len(still(scene).axes[0].patches) > 10


def test_the_budget_is_algorithm_1s(step):
    alive = survivals(step)
    table = made_up_table(2 * alive.numel())
    lengths = schedule(alive, table).tolist()
    steps = [one["say"] for one in budget_scene(step)["rounds"][0]["steps"]]
    admitted = [say for say in steps if re.match(r"Draft \d+:", say)]
    assert len(admitted) == sum(lengths) and f"The budget is {sum(lengths)} drafts." in steps[-2]
    values = [float(re.search(r"survives with (\d\.\d+)", say)[1]) for say in admitted]
    assert values == sorted(values, reverse=True)
    kept = sum(min(r.accepted, length) for r, length in zip(step, lengths))
    assert f"{kept} of the drafts are kept" in steps[-1]
    assert (
        f"carries {sum(lengths) + len(step)}." in ragged_scene(step)["rounds"][0]["steps"][2]["say"]
    )


@pytest.mark.parametrize("layer", LAYERS)
def test_the_still_shows_the_telling_step(layer):
    sampled = rounds_of(layer)
    scene = round_scene(layer, sampled)
    written = [text.get_text() for text in still(scene).axes[0].texts]
    assert sampled[0].anchor.strip() in written and sampled[0].drafts[0].text.strip() in written


@pytest.mark.parametrize(
    ("layer", "change", "says"),
    [
        ("sliders", {}, "there is no layer 'sliders'; the layers are words, time"),
        ("forecast", {"confidence": None}, "needs a drafter with a confidence head"),
        ("push", {"top": [["a", 0.1, 0.2, None]]}, "needs a drafter with a sequential head"),
    ],
)
def test_what_cannot_be_drawn_is_said(sampled, layer, change, says):
    r = sampled[0]
    changed = replace(r, drafts=[replace(draft, **change) for draft in r.drafts])
    with pytest.raises(RequestError, match=re.escape(says)):
        round_scene(layer, [changed])
    with pytest.raises(RequestError, match="at least one recorded round"):
        round_scene("words", [])


@pytest.mark.slow(reason="starts a kernel, which imports torch")
def test_a_notebook_has_both_faces_in_one_output():
    pytest.importorskip("anywidget")
    code = """from dspark_lite.course.figures.living_round import living_round
from dspark_lite.course.measure.recorded_rounds import recorded_rounds
picture = living_round("words", recorded_rounds("greedy"))"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}}).execute()
    (output,) = notebook.cells[0].outputs
    assert {"image/png", "text/plain", WIDGET_VIEW} <= output.data.keys()
    states = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    model = states[output.data[WIDGET_VIEW]["model_id"]]
    assert model["model_module"] == "anywidget"
    scene = json.loads(json.dumps(round_scene("words", recorded_rounds("greedy"))))
    assert model["state"]["scene"] == scene
