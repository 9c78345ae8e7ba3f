"""What outside judges are asked in the tests, transformers, and how any judge's answers are compared with ours."""

import json

import pytest
import torch
import transformers
from packaging.version import Version
from safetensors.torch import save_file

from dspark_lite.course.clinic.patients import as_in_the_engine
from dspark_lite.decoding.sampling import accept
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_drafter, load_target, save_draft
from tools.judges import judge_llama_cpp, judge_speculators, judge_transformers, questions, run

TARGET, DRAFTERS = toy_models(seed=1, vocab_size=13, gamma=4)
PROMPTS = [
    torch.randint(13, (1, 4 + n), generator=torch.Generator().manual_seed(n)) for n in range(3)
]


@pytest.mark.parametrize(("share", "agrees"), [(0.0, True), (1e-4, False)])
def test_transformers_rule_has_our_distribution_and_not_one_that_is_a_little_off(share, agrees):
    def rule(target_probs, *block):  # that mixes a uniform share into the target
        uniform = torch.full_like(target_probs, 1 / target_probs.shape[-1])
        return accept(target_probs.lerp(uniform, share), *block)

    assert judge_transformers.acceptance(cases=5, rule=rule) == [agrees] * 5


# transformers 5.15 gives its assistant no token to read there, and breaks down; 5.0, 5.13 and 5.23 do not.
assisted_generation = pytest.mark.skipif(
    Version(transformers.__version__).release[:2] == (5, 15),
    reason="assisted generation of transformers 5.15 breaks down",
)


@assisted_generation
def test_assisted_generation_has_our_texts_and_rounds():
    texts, rounds = judge_transformers.assisted(TARGET, DRAFTERS["small_lm"], PROMPTS, 20)
    assert all(texts) and all(rounds) and len(texts) == 3 and len(rounds) > 6
    assert all(judge_transformers.plain(TARGET, PROMPTS, 20))


ASKED = {
    "stop": [9],
    "drafters": {"plain": None, "dspark": "folder"},
    "answers": {
        "plain": [{"tokens": [1, 2, 9], "accepted": []}],
        "dspark": [
            {
                "tokens": [1, 2, 9],
                "proposed": [7, 7, 1],
                "accepted": [2, 0, 1],
                "committed": [3, 1, 1],
            }
        ],
    },
}


TEXTS = "dspark, greedy texts"
DRAFTS = "dspark, accepted drafts by round"
COMMITTED = "dspark, tokens committed by round"


@pytest.mark.parametrize(
    ("drafter", "answer", "wanted"),
    [
        # the stop token may be missing
        (
            "plain",
            {"tokens": [1, 2]},
            [("plain, greedy texts", 1, 1)],
        ),
        ("dspark", {"tokens": [1, 3], "accepted": [2, 0, 1]}, [(TEXTS, 0, 1), (DRAFTS, 3, 3)]),
        ("dspark", {"tokens": [1, 2], "accepted": [2, 1]}, [(TEXTS, 1, 1), (DRAFTS, 1, 3)]),
        # our last block has room for one draft
        (
            "dspark",
            {"tokens": [1, 2], "accepted": [2, 0, 5]},
            [(TEXTS, 1, 1), (DRAFTS, 3, 3)],
        ),
        ("dspark", {"tokens": [1, 2], "committed": [3, 1, 1]}, [(TEXTS, 1, 1), (COMMITTED, 3, 3)]),
        ("dspark", {"tokens": [1, 2], "committed": [3, 2]}, [(TEXTS, 1, 1), (COMMITTED, 1, 3)]),
    ],
)
def test_an_engine_is_compared_text_by_text_and_round_by_round(drafter, answer, wanted):
    rows = questions.compared("engine", ASKED, {"version": "1", "answers": {drafter: [answer]}})
    assert [(row["compared"], row["agreed"], row["of"]) for row in rows] == wanted


def test_the_first_block_is_compared_by_position():
    asked = ASKED | {"logits": {"dspark": [[1.0, 2.0], [0.0, 0.5]]}}
    found = {
        "version": "1",
        "answers": {"dspark": [{"tokens": [1, 2], "accepted": [2, 0, 1]}]},
        "logits": {"dspark": [[1.0, 2.0001], [0.0, 0.502]]},
    }
    row = questions.compared("engine", asked, found)[2]
    assert (row["compared"], row["agreed"], row["of"]) == (
        "dspark, logits of the first block",
        1,
        2,
    )


@pytest.mark.filterwarnings("ignore:.*has an LM head of other weights")
def test_speculators_answers_are_compared_slot_by_slot_and_its_drafts_tensor_by_tensor(tmp_path):
    save_draft(tmp_path / "draft", DRAFTERS["dspark"], TARGET)
    drafter = load_drafter(str(tmp_path / "draft"), TARGET)
    _, answer = judge_speculators.answered(TARGET, drafter, PROMPTS[0])
    ours = {f"dspark/0/{what}": value for what, value in answer.items()}
    found = {name: value.clone() for name, value in ours.items()}
    found["dspark/0/logits"] += 1e-4
    found["dspark/0/logits"][1, 2] += 2e-3
    found["dspark/0/confidence"][3] -= 2e-3
    save_file(found, tmp_path / "found.safetensors")
    asked = {
        "found": tmp_path / "found.safetensors",
        "drafts": {"dspark": {"write": str(tmp_path / "draft")}},
    }
    with torch.no_grad():
        drafter.fc.weight[0, 0] += 1
    rows = judge_speculators.compared(TARGET, asked, {"dspark": drafter}, ours)
    logits, confidence, tensors = rows.values()
    assert (logits, confidence) == ([True, False, True, True], [True, True, True, False])
    assert tensors.count(False) == 1 and len(tensors) == len(drafter.state_dict())


def test_the_first_layers_norm_serves_all_layers_of_a_drafter_with_vllms_mistake():
    target = load_target("tiny-target")
    drafter = load_drafter("tiny-dspark", target)
    ids = torch.tensor([[5, 6, 7]])
    features = target.prefill(ids, drafter.taps)[0].features
    right, wrong = drafter.begin(ids, features), as_in_the_engine(drafter).begin(ids, features)
    assert torch.equal(right.keys[0], wrong.keys[0]) and not torch.equal(
        right.keys[1], wrong.keys[1]
    )
    assert all(torch.equal(a, b) for a, b in zip(right.values, wrong.values))
    # its own norms are back in their places
    assert torch.equal(drafter.begin(ids, features).keys[2], right.keys[2])


def test_the_recorded_judges_agree_and_their_page_says_so():
    rows = json.loads(run.MEASURED.read_text())["rows"]
    text = (run.ROOT / "docs" / "judges.md").read_text()
    assert {row["judge"] for row in rows} == set(run.JUDGES)
    asked = [row for row in rows if "not_run" not in row]
    assert all(row["agreed"] == row["of"] for row in asked)
    table = text[text.index("| judge | asked | agreed |") :]
    assert all(
        f"{row['agreed']} of {row['of']}" in table and f"{row['judge']} {row['version']}" in table
        for row in asked
    )


def test_llama_cpps_log_tells_what_each_round_of_each_answer_committed():
    said = [
        "id 0 | task 0 | accepted  7/ 7 draft tokens",
        "id 0 | task 0 | accepted  0/ 3 draft tokens",
        "id 0 | task 12 | 5 accepted",
        "id 0 | task 12 | accepted  2/ 7 draft tokens",
    ]
    assert judge_llama_cpp.rounds_of("\n".join(said)) == [[8, 1], [3]]
    assert (
        judge_llama_cpp.within(10, [8, 1]) == [8, 1]
        and judge_llama_cpp.within(10, [4, 8]) == [4, 5]
        and judge_llama_cpp.within(3, []) == []
    )
    assert judge_llama_cpp.within(10, [4, 4]) == [4, 4, 1]


def test_the_runner_names_what_broke_and_keeps_the_rows_of_judges_that_were_not_asked(
    tmp_path, monkeypatch
):
    def broken(lab, options):
        raise ValueError("no\n wheel")

    def half(lab, options):
        return questions.rows_of("half", "1", {"texts": [True, False]})

    earlier = {"judge": "other", "version": "2", "compared": "fits", "agreed": 1, "of": 1}
    monkeypatch.setattr(run, "JUDGES", dict(half=half, broken=broken, other=None, new=None))
    monkeypatch.setattr(run, "lab_of", lambda options: None)
    monkeypatch.setattr(run, "header", lambda lab: {"commit": "now"})
    out = tmp_path / "judges.json"
    out.write_text(json.dumps({"rows": [{**earlier, "commit": "then"}]}))
    assert run.main(["--only", "half", "broken", "--out", str(out)]) == 1
    rows = json.loads(out.read_text())["rows"]
    assert rows[0] | {"compared": "texts", "agreed": 1, "of": 2, "commit": "now"} == rows[0]
    assert rows[1] == {"judge": "broken", "not_run": "ValueError: no wheel", "commit": "now"}
    assert rows[2] == {**earlier, "commit": "then"} and rows[3]["not_run"] == "not asked yet"
    assert run.main(["--only", "broken", "--out", str(out)]) == 0, (
        "who was not heard denies nothing"
    )
