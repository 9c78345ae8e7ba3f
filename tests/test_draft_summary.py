"""`inspect`: what a draft is and which target it fits, from a config and the headers of the weights; nothing else is fetched."""

import json

import pytest

from dspark_lite.__main__ import main
from dspark_lite.common.files import ROOT
from dspark_lite.course.measure.draft_summary import summarise, target_shape
from dspark_lite.models.checkpoints import EMBEDDED
from dspark_lite.models.export import export
from tools.hub_server import FETCHED, Hub, write_headers

MANIFEST = json.loads((ROOT / "assets" / "reference" / "released_manifest.json").read_text())
TARGETS = json.loads((ROOT / "assets" / "reference" / "released_targets.json").read_text())
WHOLE = {
    "dspark": "5 layers, 7 drafts a round from blocks of 7, vanilla head of rank 256, confidence head",
    "dflash": "5 layers, 7 drafts a round from blocks of 7, no sequential head",
    "eagle3": "1 layer, 7 drafts a round, token by token",
}


@pytest.fixture
def hub(tmp_path):
    with Hub() as served, served.used_here(tmp_path / "home"):
        yield served


@pytest.mark.parametrize("name", MANIFEST)
def test_a_released_draft_is_told_from_its_header(hub, tmp_path, capsys, name):
    entry = MANIFEST[name]
    size = write_headers(tmp_path / name, entry["config"], entry["tensors"])
    hub.models[name] = {"main": tmp_path / name}
    assert main(["inspect", name]) == 0
    told = capsys.readouterr().out
    assert (
        WHOLE[entry["algorithm"]] in told
        and f"{len(entry['tensors'])} tensors, {size / 1e9:.2f} GB\n" in told
    )
    assert (
        f"of {entry['config']['num_target_layers']} of the target, of hidden size {entry['config']['hidden_size']:,}\n"
        in told
    )
    assert hub.bytes_sent < FETCHED + 20_000  # the header, the config, and what the Hub lists
    assert not list((tmp_path / "home").rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("draft", "fits"),
    [("deepseek-ai/dspark_qwen3_4b_block7", True), ("deepseek-ai/eagle3_qwen3_8b_ttt7", False)],
)
def test_a_target_is_asked_for_its_config_alone(hub, tmp_path, capsys, draft, fits):
    target = "Qwen/Qwen3-4B"
    write_headers(tmp_path / draft, MANIFEST[draft]["config"], MANIFEST[draft]["tensors"])
    (tmp_path / target).mkdir(parents=True)
    (tmp_path / target / "config.json").write_text(json.dumps(TARGETS[target]["config"]))
    hub.models |= {name: {"main": tmp_path / name} for name in (draft, target)}
    assert main(["inspect", draft, "--target", target, "--json", str(tmp_path / "told.json")]) == (
        not fits
    )
    told = capsys.readouterr().out
    assert (
        f"target      {target}: fits\n" in told
        if fits
        else f"{target}: does not fit; the drafter was made for a hidden size of 4096" in told
    )
    measured = json.loads((tmp_path / "told.json").read_text())
    assert (
        measured["fits"] == fits
        and measured["form"] == "DeepSpec"
        and len(measured["targets"]) == 1
    )


def test_a_tensor_that_the_config_does_not_ask_for_does_not_fit(hub, tmp_path, capsys):
    name = "deepseek-ai/dflash_qwen3_4b_block7"
    write_headers(
        tmp_path / name, MANIFEST[name]["config"], MANIFEST[name]["tensors"] | {"norm.weight": [7]}
    )
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps(TARGETS["Qwen/Qwen3-4B"]["config"]))
    hub.models[name] = {"main": tmp_path / name}
    assert main(["inspect", name, "--target", str(tmp_path / "target")]) == 1
    assert "tensor norm.weight of" in capsys.readouterr().out


def test_a_folder_is_read_and_what_it_lacks_is_the_targets(tmp_path):
    export("tiny-eagle3", "speculators", tmp_path / "out", "org/model")
    summary = summarise(str(tmp_path / "out"))
    assert (
        summary.draft.target == "org/model"
        and "form        speculators, for org/model" in summary.lines()
    )
    assert summary.fit(target_shape("tiny-target")) == ("tiny-target", True, "")
    config = json.loads((EMBEDDED / "tiny-target" / "config.json").read_text())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps(config | {"vocab_size": 8000}))
    assert (
        "vocabulary of 3584 tokens, this target has 8000"
        in summary.fit(target_shape(str(tmp_path / "other"))).reason
    )


def test_what_is_no_draft_is_refused_in_a_sentence(hub, tmp_path, capsys):
    assert main(["inspect", "tiny-target"]) == 2
    assert "is a Qwen3ForCausalLM, which is not drafted here" in capsys.readouterr().err
    assert main(["inspect", "nobody/nothing"]) == 2
    assert "could not be fetched from the Hub" in capsys.readouterr().err
    assert main(["inspect", "tiny-dspark", "--target", "tiny-dspark"]) == 1
    assert "does not fit; tiny-dspark is a Qwen3DSparkModel" in capsys.readouterr().out
