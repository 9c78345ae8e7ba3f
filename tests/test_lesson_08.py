"""Lesson 08: what it prints of checkpoints is true, and its figures show it."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import drawn, written
from safetensors.torch import load_file, save_file
from stated import between, caught, cells, printed, prose, tied

from dspark_lite import generate, setup
from dspark_lite.common.estimates import Estimate
from dspark_lite.common.files import ROOT
from dspark_lite.common.recorded import REFERENCE, read, reference
from dspark_course.exercises import lesson_08 as exercises
from dspark_course.figures import lesson_08 as figures
from dspark_lite.losslessness.parity import TOLERANCE
from dspark_lite.losslessness.ties import Parting, parted
from dspark_course.measure import shapes
from dspark_lite.models import inspection
from dspark_lite.models.checkpoints import EMBEDDED, load_draft_alone, load_drafter, load_target, read_config
from dspark_lite.models.weights import held
from dspark_course.measure import roofline
from dspark_course.measure.studies import TABLE_1
from dspark_course.replication.our_results import accepted_lengths


# What is said of checkpoints ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny-dspark", "tiny-dflash", "tiny-eagle3", "tiny-dspark-rnn"])
def test_every_tensor_of_our_drafts_finds_its_place(name):
    found = {tensor: entry.shape for tensor, entry in inspection.stored(name).items()}
    assert inspection.place(inspection.asked_for(read_config(EMBEDDED / name)), found) == (set(), set(), set())


def test_placement_names_what_does_not_fit():
    asked, found = {"a": (1, 2), "b": (3,), "c": (4,)}, {"a": (2, 1), "c": [4], "d": (5,)}
    assert inspection.place(asked, found) == ({"b"}, {"d"}, {"a"})


def test_stored_reads_shards_and_types(tmp_path):
    save_file({"a": torch.zeros(2, 3, dtype=torch.bfloat16)}, tmp_path / "x.safetensors")
    save_file({"b": torch.zeros(4)}, tmp_path / "y.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}))
    stored = inspection.stored(str(tmp_path))
    assert stored == {"a": ((2, 3), torch.bfloat16), "b": ((4,), torch.float32)}
    assert [entry.nbytes for entry in stored.values()] == [12, 16]


def test_parts_are_all_of_the_file():
    sizes = {name: entry.nbytes for name, entry in inspection.stored("tiny-dspark").items()}
    parts = inspection.by_part(sizes)
    assert list(parts) == ["embedding", "LM head", "context projection", "backbone", "sequential head", "confidence head"]
    assert sum(parts.values()) == sum(sizes.values())


@pytest.mark.parametrize(("dtype", "least", "most"), [(torch.float32, 0, TOLERANCE), (torch.float16, 1e-4, 2e-2), (torch.bfloat16, 1e-3, 0.2)])
def test_modules_err_as_far_as_their_type_rounds(dtype, least, most):
    errors = inspection.module_errors("dspark_vanilla", dtype)
    assert list(errors) == list(inspection.MODULES)
    assert all(least <= error <= most for error in errors.values())


def test_a_module_without_a_head_has_no_error_of_it():
    assert list(inspection.module_errors("dflash")) == ["backbone", "LM head"]


def test_what_is_held_is_counted_once():
    target = load_target("tiny-target")
    weights = sum(value.nbytes for value in target.model.parameters())
    alone = held(target, None, 10)
    assert alone["drafter"] == 0 and weights <= alone["target"] < 1.01 * weights  # and a few buffers
    assert alone["keys and values"] == 10 * 2 * 12 * 2 * 32 * 4  # keys and values, layers, key heads, head size, bytes
    draft, small = (held(target, load_drafter(name, target), 10) for name in ("tiny-dspark", "tiny-small-lm"))
    stored = inspection.by_part({name: 2 * entry.nbytes for name, entry in inspection.stored("tiny-dspark").items()})  # 32 bits in memory
    assert draft["drafter"] == sum(stored.values()) - stored["embedding"] - stored["LM head"]
    assert draft["keys and values"] == alone["keys and values"] + 10 * 2 * 3 * 2 * 32 * 4
    assert draft["target"] == small["target"] == alone["target"] and small["drafter"] > 0


def test_the_public_run_is_the_issues_and_names_its_source():
    public = reference("public_run.json")
    assert public["accepted_length"] == {"math": 3.25, "code": 6.40, "chat": 3.96} and public["speedup"] == 3.66
    block = public["first_block"]
    assert "".join(block["tokens"]) == " sky is blue because of a shorter" and len(block["tokens"]) == len(block["confidence"]) == 7
    assert "not measured by this project" in public["source"]
    assert public["settings"]["temperature"] == 0 and public["settings"]["max_new_tokens"] == 96 and public["speed_is_of"] == "one prompt"
    speeds = public["tokens_per_second"]
    assert round(speeds["dspark"] / speeds["plain"], 1) == round(public["speedup"], 1), "a ratio of printed, rounded speeds"


# Ties ----------------------------------------------------------------------------------------------------------------


def test_parted_says_where_and_how_near():
    target = load_target("tiny-target")
    ids = torch.tensor([[5, 6, 7]])
    assert parted(target, ids, [1, 2], [1, 2]) is None
    assert parted(target, ids, [1], [1, 2]) == Parting(1, float("inf"), 0.0)
    found = parted(target, ids, [1, 2, 3], [1, 4, 3])
    logits = target.prefill(torch.tensor([[5, 6, 7, 1]]))[0].logits[0, -1]
    assert found.at == 1 and found.gap == pytest.approx(float(logits.max() - logits[[2, 4]].min()))
    assert found.allowed == pytest.approx(8 * torch.finfo(torch.float32).eps * float(logits.abs().max())) and not found.tied


# Figures -------------------------------------------------------------------------------------------------------------


def test_drafts_are_judged_up_to_the_first_that_is_not_wanted():
    assert figures.judged(["a", "b", "c"], ["a", "x", "c"]) == [("a", "kept"), ("b", "refused"), ("c", "unread")]
    assert figures.judged(["a", "b"], ["a", "b"]) == [("a", "kept"), ("b", "kept")]


def test_parts_of_files_are_shares_and_copies_are_hatched(closing):
    fig = figures.file_parts({"one": {"embedding": 5e6, "backbone": 10e6}, "two": {"embedding": 1e6, "backbone": 1e6}},
                             {"embedding"})
    assert [bar.get_width() for bar in fig.axes[0].patches] == pytest.approx([1 / 3, 2 / 3, 1 / 2, 1 / 2])
    assert [bar.get_hatch() for bar in fig.axes[0].patches] == ["///", None] * 2
    assert written(fig) == ["33%", "67%", "15.0 MB", "50%", "50%", "2.0 MB"]


def test_errors_of_modules_stand_beside_the_tolerance(closing):
    (axes,) = figures.module_error_figure({"float32": [{"backbone": 1e-6}], "bfloat16": [{"backbone": 1e-2}]}, 1e-4).axes
    assert drawn(axes) == {"computed in float32": [1e-6], "computed in bfloat16": [1e-2], "tolerance in float32, 1e-04": [1e-4] * 2}


def test_blocks_stand_under_one_another(closing):
    fig = figures.blocks({"ours": [("a", "kept"), (" b", "refused")], "shorter": [("$", "added")]}, anchor="def")
    assert written(fig) == ["anchor", "def", "1", "2", "ours", "a", "×·b", "shorter", "+$"]
    places = {text.get_text(): text.get_position() for text in fig.axes[0].texts}
    assert places["def"][1] == places["a"][1] and places["def"][0] < places["a"][0], "the anchor leads the first row"


def test_rounding_rings_the_choices_that_change(closing):
    numbers = np.array([0.0, 1e-3, 5.0]), np.array([0.0, 1e-2, 1e-3]), np.array([False, True, False])
    fig = figures.rounding({"float32": numbers, "float16": (*numbers[:2], ~numbers[2])})
    assert [axes.get_title() for axes in fig.axes] == ["float32: 1 of 3 choices change", "float16: 2 of 3 choices change"]
    assert [list(axes.lines[1].get_ydata()) for axes in fig.axes] == [[1e-2], [1e-6, 1e-3]]


def test_the_public_run_is_hollow_beside_ours(closing):
    public, places = reference("public_run.json"), ("math", "code", "chat")
    estimates = {domain: Estimate(2.0 + k, 1.5, 5.5) for k, domain in enumerate(places)}
    speeds = {"math": 1.0, "code": 2.0, "chat": 3.0, "total": 2.0}
    length, speed = figures.beside_public({"small_lm": estimates, "dspark": estimates},
                                          {"small_lm": speeds, "dspark": speeds}, public, "CPU").axes
    (theirs,) = [label for label in drawn(length) if label.endswith("public")]
    assert drawn(length)[theirs] == [public["accepted_length"][place] for place in places] and drawn(speed)[theirs] == [3.66]
    assert drawn(speed)["DSpark"] == [1.0, 2.0, 3.0, 2.0]
    middle = [list(container.lines[0].get_ydata()) for container in length.containers]
    assert middle == [[2.0, 3.0, 4.0]] * 2
    assert not any(name in axes.get_title() for axes in (length, speed) for name in ("DSpark", "small LM")), "no title ranks drafters"
    alone, _ = figures.beside_public({"dspark": estimates}, {"dspark": speeds}, None, "CPU").axes
    assert not any(label.endswith("public") for label in drawn(alone))


def test_mistakes_are_shown_by_position_and_by_round(closing):
    answers = [SimpleNamespace(rounds=[SimpleNamespace(accepted=a, committed=a + 1) for a in one]) for one in ([2, 0], [1])]
    position, number = figures.diagnosed({"right": answers, "wrong": answers[1:]}, {"right": 2, "wrong": 1}).axes
    assert [list(line.get_ydata()) for line in position.lines] == [[pytest.approx(2 / 3), pytest.approx(1 / 3)], [1.0]]
    assert [list(line.get_ydata()) for line in number.lines] == [[2.5, 1.0], [2.0]]
    assert sorted(text.get_text() for text in number.texts) == ["right", "wrong"]


def test_an_engines_acceptance_stands_beside_ours(closing):
    counts = {"generate": {"rounds": 4, "accepted_by_position": [4, 2]}, "vllm": {"rounds": 5, "accepted_by_position": [4, 1]}}
    (axes,) = figures.engine_acceptance([{"drafter": "dspark", **counts}], "vLLM 1").axes
    assert drawn(axes) == {"DSpark, generate": [1.0, 0.5], "DSpark, vLLM 1": [0.8, 0.2]}


def test_the_recorded_engine_writes_our_texts_in_as_many_rounds_and_yet_accepts_other_drafts():
    """What the lesson says before it searches for the cause."""
    rows = [row for row in read(ROOT / "assets" / "measurements" / "engine.json", "make engine")["rows"] if "not_run" not in row]
    assert all(row["same_texts"] == row["of"] for row in rows)
    for row in (row for row in rows if row["drafter"] != "plain"):
        ours, theirs = row["generate"], row["vllm"]
        assert ours["rounds"] == theirs["rounds"] and ours["accepted_by_position"] != theirs["accepted_by_position"]


def test_memory_adds_up(closing):
    fig = figures.memory_bars({"plain": {"target": 10**6, "drafter": 0, "keys and values": 10**5}}, 1024)
    assert [bar.get_width() for bar in fig.axes[0].patches] == pytest.approx([1.0, 0.0, 0.1])
    assert written(fig) == ["target", "keys and values", " 1.1"] and "0% more" in fig.axes[0].get_title()
    assert fig.axes[0].get_xlabel() == "memory held (MB), caches of 1,024 tokens"


# What the lesson says is what it prints ------------------------------------------------------------------------------

NUMBER = r"([+-]?\d+(?:\.\d+)?)"


@pytest.mark.parametrize(("sentence", "output"), [
    (rf"in the released file {NUMBER} MB each", rf"^  embed_tokens.weight .* {NUMBER} MB$"),
    (rf"in the released file {NUMBER} MB each", rf"^  lm_head.weight .* {NUMBER} MB$"),
    (rf"second and third layer {NUMBER} % and {NUMBER} % off the first's", rf"^norms differ from the first: 0%  {NUMBER}%  {NUMBER}%$"),
    (rf"DSpark accepts {NUMBER} % less than DFlash on math, an interval below zero", rf"^math +DSpark over DFlash, .*: -{NUMBER}% \[-\d+%, -\d+%\]$"),
    (rf"an interval below zero, {NUMBER} % less on code", rf"^code +DSpark over DFlash, .*: -{NUMBER}% "),
    (rf"less on code, and {NUMBER} % more on chat", rf"^chat +DSpark over DFlash, .*: \+{NUMBER}% \[\+\d+%, "),
    (rf"right one \({NUMBER} tokens in the first round, {NUMBER} in later ones",
     rf"^block left in the cache .*: {NUMBER} in the first round, {NUMBER} in"),
    (rf"wrong from the start \({NUMBER}\)", rf"^read in the other layout .*: {NUMBER} in the first round"),
    (rf"{NUMBER} tokens per round, against [\d.]+ of the draft as it is", rf"^taps one layer early +accepted length {NUMBER}:"),
    (rf"tokens per round, against {NUMBER} of the draft as it is", rf"^as it is +accepted length {NUMBER}:"),
    (rf"cost about as much \({NUMBER} and [\d.]+ tokens per round", rf"^read in the other layout +accepted length {NUMBER}:"),
    (rf"cost about as much \([\d.]+ and {NUMBER} tokens per round", rf"^block left in the cache +accepted length {NUMBER}:"),
    (rf"\({NUMBER} with DSpark, [\d.]+ with DFlash\)", rf"^DSpark +vllm .* in all {NUMBER}$"),
    (rf"\({NUMBER} with DSpark, [\d.]+ with DFlash\)", rf"^DSpark +generate .* in all {NUMBER}$"),
    (rf"with DSpark, {NUMBER} with DFlash\)", rf"^DFlash +vllm .* in all {NUMBER}$"),
    (rf"with DSpark, {NUMBER} with DFlash\)", rf"^DFlash +generate .* in all {NUMBER}$"),
])
def test_what_the_lesson_says_it_prints(sentence, output):
    tied("08", sentence, output)


def test_four_drafts_of_the_small_lm_break_even_where_the_exercise_says():
    said = caught(rf"Four passes take 4/7 of {NUMBER} ms, {NUMBER} ms; with the verifying pass a round takes {NUMBER} ms, {NUMBER} plain passes\. "
                  rf".*One draft costs {NUMBER} ms, a round {NUMBER} plain passes: the draft would have to be accepted with a chance of {NUMBER}\.",
                  prose("08"), "the prose")
    row = roofline.predict("H200", "small_lm")
    four, one = 4 * row.draft / 7, row.draft / 7
    passes = (one + row.verify) / row.plain
    found = row.draft, four, four + row.verify, (four + row.verify) / row.plain, one, passes, passes - 1
    assert list(map(float, said)) == pytest.approx(list(found), rel=0.03)
    public = reference("public_run.json")["small_lm_accepted_length"]
    assert "commits 2.30, 3.06 and 2.40" in prose("08") and list(public.values()) == [2.30, 3.06, 2.40] and max(public.values()) < found[3]


def test_the_tables_speeds_divided_by_those_in_brackets_are_its_ratios():
    tables = [output.data.get("text/markdown", "") for cell in cells("08") for output in cell.get("outputs", []) if "data" in output]
    rows = [row for table in tables if "tokens/s (plain)" in table
            for row in re.findall(rf"\| {NUMBER} \({NUMBER}\) \| {NUMBER} \|$", table, re.M)]
    assert len(rows) == 3, "three drafters"
    for speed, plain, ratio in rows:
        assert float(speed) / float(plain) == pytest.approx(float(ratio), rel=0.01)


@pytest.mark.parametrize(("sentence", "output", "bands"), [
    ("In float16 and bfloat16 none to a few of 100 places change", rf"measured +float32 0.0, float16 {NUMBER}, bfloat16 {NUMBER}",
     [(0, 4), (0.1, 4)]),
    ("eight rounding steps of the largest logit. No move above was more than about five steps in float32 and one in 16 bits",
     rf"^largest move, .*: float32 {NUMBER}, float16 {NUMBER}, bfloat16 {NUMBER}$", [(0, 5.5), (0, 1.5), (0, 1.5)])])
def test_how_far_rounding_moves_is_what_the_lesson_says_of_it(sentence, output, bands):
    between("08", sentence, output, *bands)


def test_answers_part_in_bfloat16_as_the_lesson_wants_to_show():
    assert re.search(r"^'.*' parts at token \d+: [\d.]+ below the largest logit", printed("08"), re.M)


def test_the_tolerance_is_the_packages_and_far_above_what_is_left():
    (said,) = caught(r"an error of at most (2e-4) \(`TOLERANCE`\)", prose("08"), "the prose")
    left = [float(error) for error in re.findall(r"largest absolute error ([\d.e-]+)", printed("08"))]
    assert float(said) == TOLERANCE and len(left) == 4 and max(left) < TOLERANCE / 100


def test_a_mistake_is_thousands_of_times_above_the_tolerance():
    rows = re.findall(r"^(?:taps|read in|block left).*features ([\d.e+-]+)  first block ([\d.e+-]+)  second block ([\d.e+-]+)$", printed("08"), re.M)
    assert len(rows) == 3 and all(max(map(float, row)) > 2000 * TOLERANCE for row in rows)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", ["dspark_vanilla", "dspark_gated", "dspark_rnn", "dspark_conf_plain", "dflash"])
def test_in_16_bits_heads_stay_below_a_rounding_step_and_the_backbone_below_two(case, dtype):
    assert "each head stays below one step, and the backbone, which is several layers deep, below two" in prose("08")
    expected = load_file(REFERENCE / "golden" / case / "tensors.safetensors")
    for module, error in inspection.module_errors(case, dtype).items():
        step = torch.finfo(dtype).eps * expected[inspection.MODULES[module]].abs().max().item()
        assert error < (2 if module == "backbone" else 1) * step, module


def test_a_mistake_stands_out_of_the_rounding_in_16_bits():
    assert "The mistakes that we make further down would still stand out" in prose("08")
    worst = max(float(error) for error in re.findall(r"^b?float16 .* all modules ([\d.e-]+)$", printed("08"), re.M))
    rows = re.findall(r"^(?:taps|read in|block left).*features ([\d.e+-]+)  first block ([\d.e+-]+)  second block ([\d.e+-]+)$", printed("08"), re.M)
    assert all(max(map(float, row)) > 20 * worst for row in rows)


def test_the_readers_function_says_what_the_released_draft_adds():
    (call,) = caught(r"`added_bytes\((.*?)\)`\.", prose("08"), "the prose")
    shapes_of = reference("released_manifest.json")["deepseek-ai/dspark_qwen3_4b_block7"]["tensors"]
    listed = {name: SimpleNamespace(shape=tuple(shape)) for name, shape in shapes_of.items()}
    added = eval(f"added_bytes({call})", {"added_bytes": exercises.added_bytes, "listed": listed})
    (said,) = caught(r"^the released one, shared likewise, adds ([\d,.]+) MB in 16 bits$", printed("08"), "the output")
    assert f"{added / 1e6:,.1f}" == said


@torch.inference_mode()
def test_a_doubled_sequential_head_shows_in_the_logits_and_in_no_hidden_state():
    """The answer that exercise 6 folds in."""
    case = REFERENCE / "golden" / "dspark_vanilla"
    given = load_file(case / "tensors.safetensors")
    draft = load_draft_alone(case / "draft")
    draft.markov_head.markov_w2.weight.mul_(2)
    outputs = inspection.module_outputs(draft, given)
    errors = {name: (outputs[name] - given[name]).abs().max().item() for name in ("block_hidden", "corrected_logits")}
    assert errors["block_hidden"] < TOLERANCE < errors["corrected_logits"] / 1000


def test_one_answer_takes_a_round_more_with_vllms_mistake_and_another_one_fewer():
    for name in ("DSpark", "DFlash"):
        ours, theirs = (json.loads(caught(rf"^{name} +{who} +rounds by answer: (\[.*\])$", printed("08"), "the output")[0])
                        for who in ("ours", "with the mistake"))
        assert sorted(set(b - a for a, b in zip(ours, theirs))) == [-1, 0, 1] and sum(ours) == sum(theirs)


def test_logits_are_ten_thousand_roundings_off_at_the_first_position():
    between("08", "more than ten thousand times as much, at the first position already", rf"^logits differ by position: +{NUMBER} ", (0.1, 1.0))


@pytest.fixture(scope="module")
def lab():
    """The tiny models with the prompts of the lesson."""
    return setup("tiny")


@torch.inference_mode()
def test_the_best_logits_are_as_large_and_as_near_as_the_hint_of_the_prediction_says(lab):
    said = caught(rf"the best logits here are {NUMBER} to {NUMBER}; and in about {NUMBER} of 100 places the two best are less than {NUMBER} apart",
                  prose("08"), "the prose")
    least, most, share, near = map(float, said)
    best = []
    for text in (text for texts in lab.prompts.values() for text in texts[:2]):
        ids = lab.encode(text)
        answer = generate(lab.target, None, ids, max_new_tokens=32, stop_token_ids=()).token_ids
        best.append(lab.target.verify(torch.tensor([answer]), lab.target.prefill(ids)[1]).logits[0].topk(2).values)
    first, second = torch.cat(best).unbind(1)
    assert first.min() > least - 0.5 and first.max() < most + 0.5
    assert 100 * (first - second < near).double().mean().item() == pytest.approx(share, abs=1.5)


@torch.inference_mode()
def test_confidence_falls_where_the_name_begins_and_the_block_ends_a_token_later(lab):
    assert "it falls where the function's name begins, and at the name's second token the block ends" in prose("08")
    draft, ids = lab.drafter("dspark"), lab.encode(lab.prompts["code"][0])
    answer = generate(lab.target, None, ids, max_new_tokens=8, stop_token_ids=()).token_ids
    state = draft.begin(ids, lab.target.prefill(ids, draft.taps)[0].features)
    proposal = draft.propose(state, torch.tensor(answer[:1]), temperature=0.0, generator=None)
    (refused,) = [k for k, (_, kind) in enumerate(figures.judged(proposal.tokens[0].tolist(), answer[1:])) if kind == "refused"]
    assert "".join(lab.tokenizer.decode(answer[1:refused + 1])).startswith("python\ndef get")
    assert [k for k, said in enumerate(proposal.confidence[0].tolist()) if said < 0.9] == [refused - 1, refused]


@torch.inference_mode()
def test_the_code_prompt_has_both_places_that_the_reader_is_to_find(lab):
    """One where the head makes all seven drafts right and without it none is, and one where it loses four or more."""
    said = caught(rf"at answer token {NUMBER} the head keeps {NUMBER} drafts, and {NUMBER} are kept without it; at {NUMBER}, {NUMBER} and {NUMBER}\.",
                  prose("08"), "the prose")
    saved, lost = map(int, said[::3])
    draft, ids = lab.drafter("dspark"), lab.encode(lab.prompts["code"][0])
    answer = generate(lab.target, None, ids, max_new_tokens=40, stop_token_ids=()).token_ids
    found = []
    for place in (saved, lost):
        before = torch.cat([ids, torch.tensor([answer[:place]])], 1)
        anchor, wanted = torch.tensor([answer[place]]), answer[place + 1:place + 8]
        hidden = draft.block_hidden(draft.begin(before, lab.target.prefill(before, draft.taps)[0].features), anchor)
        both = draft.draw_block(hidden, anchor, 0.0, None)[0][0].tolist(), draft.lm_head(hidden)[0].argmax(-1).tolist()
        found += [place, *(sum(kind == "kept" for _, kind in figures.judged(tokens, wanted)) for tokens in both)]
    assert found == list(map(int, said)) and found[1:3] == [7, 0] and found[5] - found[4] >= 4


@pytest.mark.parametrize(("label", "first_wrong"), [
    ("as it is", 3), ("taps one layer early", 0), ("read in the other layout", 1), ("block left in the cache", 2)])
def test_a_whole_run_shows_each_mistake_where_the_lesson_says(label, first_wrong):
    wide = r"([\d.e+-]+)"
    bands = [(0, TOLERANCE) if column < first_wrong else (0.1, 100) for column in range(3)]
    between("08", "the taps in the features, the layout in the first block, the cache in the second",
            rf"^{label} +features {wide}  first block {wide}  second block {wide}$", *bands)


def test_the_drafters_on_many_prompts_are_those_of_the_stored_experiments():
    said = caught(rf"ahead on math \({NUMBER} against {NUMBER} tokens\) and level on code \({NUMBER} against {NUMBER};", prose("08"), "the prose")
    measured = [accepted_lengths(TABLE_1[name])[domain].value for domain in ("math", "code") for name in ("dspark", "dflash")]
    assert [float(number) for number in said] == [round(value, 2) for value in measured]


def test_the_predicted_gains_are_the_rooflines():
    said = caught(rf"the same speed-up, {NUMBER} at an accepted length of 4\. At 10 µs per operation it is {NUMBER} on a T4 and {NUMBER} on an H200",
                  prose("08"), "the prose")
    rows = [roofline.predict(device, "dspark", launch=launch) for device, launch in (("L4", 0.0), ("T4", 10.0), ("H200", 10.0))]
    assert [float(number) for number in said] == [round(4 * row.plain / (row.draft + row.verify), 2) for row in rows]


def test_the_draft_has_fewer_of_the_starts_than_of_the_bytes():
    said = caught(rf"DSpark's draft reads {NUMBER} % of a plain pass's bytes but has only {NUMBER} % of its starts", prose("08"), "the prose")
    draft, plain = roofline.draft_work("dspark"), roofline.verify_work("plain")
    assert [float(number) for number in said] == [round(100 * draft.bytes / plain.bytes), round(100 * draft.launches / plain.launches)]


def test_the_public_notebook_needs_more_memory_than_predicted():
    said = caught(rf"reports {NUMBER} GB of memory, {NUMBER} more than the table's {NUMBER} for DSpark; what CUDA keeps for itself, some {NUMBER},",
                  prose("08"), "the prose")
    named, predicted = reference("public_run.json")["memory_gigabytes"], roofline.predict("H200", "dspark").memory / 1e9
    assert [float(number) for number in said] == [named, round(named - predicted, 1), round(predicted, 1), shapes.CUDA / 1e9]


def test_the_measured_and_the_predicted_ratio_are_told_beside_the_time():
    said = caught(rf"DSpark is some {NUMBER} times as fast as plain decoding there and {NUMBER} times in the prediction", prose("08"), "the prose")
    speeds, row = reference("public_run.json")["tokens_per_second"], roofline.predict("H200", "dspark")
    measured = [speeds["dspark"] / speeds["plain"], roofline.paper_lengths()["dspark"] / row.break_even]
    assert [float(number) for number in said] == [round(number, places) for number, places in zip(measured, (1, 2))]
    assert "loop takes more than three times as long" in prose("08") and roofline.predict("H200").tokens_per_second(1) > 3 * speeds["plain"]


def test_the_public_speed_is_of_one_prompt():
    assert "The speeds are of one prompt alone" in prose("08") and reference("public_run.json")["speed_is_of"] == "one prompt"


def test_the_small_lms_passes_cost_what_the_lesson_says():
    said = caught(rf"its seven passes of some ([\d,]+) starts each take {NUMBER} ms on an H200, "
                  rf"where the target's one takes {NUMBER}\. "
                  rf"To break even it has to commit {NUMBER} of at most {NUMBER} tokens per round\.", prose("08"), "the prose")
    row, gamma, public = roofline.predict("H200", "small_lm"), shapes.module("small_lm").gamma, reference("public_run.json")
    starts = round(roofline.launches("small_lm")["draft"] / gamma, -2)
    assert [float(number.replace(",", "")) for number in said] == [
        starts, round(row.draft), round(row.plain), round(row.break_even, 2), gamma + 1]
    assert public["settings"]["small_lm_gamma"] == 4 and public["tokens_per_second"]["small_lm"] < public["tokens_per_second"]["plain"]


def test_the_small_lms_are_as_deep_as_the_lesson_says():
    said = caught(rf"the released small LM has {NUMBER} layers and its target {NUMBER}; "
                  rf"our tiny one, which gained, has {NUMBER} and its target {NUMBER}\.",
                  prose("08"), "the prose")
    configs = [shapes.config("small_lm"), shapes.config("target"), *(read_config(EMBEDDED / name) for name in ("tiny-small-lm", "tiny-target"))]
    assert [int(number) for number in said] == [config["num_hidden_layers"] for config in configs]


def test_a_round_with_a_draft_starts_more_to_enter_what_was_committed():
    (said,) = caught(rf"verify has {NUMBER} more starts than a plain pass, most of them to enter what was committed", prose("08"), "the prose")
    plain = roofline.launches("plain")
    for name in ("dflash", "dspark"):
        more = {part: count - plain[part] for part, count in roofline.launches(name).items() if part != "draft"}
        assert sum(more.values()) == int(said) and more["commit"] > sum(more.values()) / 2


def test_the_small_lm_of_the_prediction_drafts_seven():
    assert "(it drafts seven here)" in prose("08") and shapes.module("small_lm").gamma == 7


def test_a_plain_pass_is_its_bytes_and_its_starts():
    said = caught(rf"plain pass on a T4 takes {NUMBER} ms to read the weights and some 1,800 starts, {NUMBER} ms in all", prose("08"), "the prose")
    row = roofline.predict("T4")
    assert [float(number) for number in said] == [round(row.bound, 1), round(row.plain)]
    assert round(roofline.verify_work("plain").launches, -2) == 1800


def test_the_public_loop_is_slower_than_the_prediction_of_an_older_gpu():
    said = caught(rf"are {NUMBER} tokens per second on an H200\. The public notebook measured {NUMBER} on a GB200", prose("08"), "the prose")
    plain = reference("public_run.json")["tokens_per_second"]["plain"]
    assert [float(number) for number in said] == [round(roofline.predict("H200").tokens_per_second(1)), plain]


def test_plain_decoding_gains_from_compiling_too():
    between("08", "Plain decoding gains too", rf"^what compiling leaves .*: plain decoding {NUMBER}, DSpark {NUMBER}$", (0.1, 0.9), (0.1, 0.9))
    between("08", "The speed-up falls here, too: compiling saves a larger share of plain decoding's time than of DSpark's",
            rf"^DSpark's speed-up becomes {NUMBER} of what it was$", (0.1, 0.95))


def test_the_small_lm_adds_least():
    """As the lesson says of the tiny models, which it shows, and of the released ones, which it predicts."""
    target = load_target("tiny-target")
    tiny = [sum(held(target, load_drafter(f"tiny-{name}", target), 1024).values()) for name in ("small-lm", "dflash", "dspark")]
    released = [roofline.predict("T4", name).memory for name in ("small_lm", "dflash", "dspark")]
    assert tiny[0] == min(tiny) and released[0] == min(released)
    assert "a draft is as wide as the target, the small LM at most half as wide" in prose("08")
    for config in (lambda role: read_config(EMBEDDED / f"tiny-{role.replace('_', '-')}"), shapes.config):
        width, small, *drafts = (config(role)["hidden_size"] for role in ("target", "small_lm", "dflash", "dspark"))
        assert drafts == [width, width] and small <= width / 2
