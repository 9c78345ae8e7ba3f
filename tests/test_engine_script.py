"""`make engine`: the words that start a server, the counters read from its metrics, and ours beside them."""

import json
import subprocess

import pytest

from dspark_lite.common.errors import DSparkLiteError
from tools import local_server
from tools.engine import engine

METRICS = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny-target"} 12.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny-target"} 84.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny-target"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny-target",position="0"} 11.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny-target",position="1"} 9.0
python_info{version="3"} 1.0
"""


def test_counters_are_read_from_the_metrics():
    assert engine.counted(METRICS) == {"rounds": 12, "proposed": 84, "accepted": 30, "accepted_by_position": [11, 9, 0, 0, 0, 0, 0]}
    assert engine.counted("") == {"rounds": 0, "proposed": 0, "accepted": 0, "accepted_by_position": [0] * 7}


def test_a_server_is_told_its_drafter_and_its_cache():
    run = {"drafter": "dspark", "prefix_cache": False, "at_once": 1}
    words = engine.command("python", run, "folder", 8000)
    assert json.loads(words[words.index("--speculative-config") + 1]) == {"method": "dspark", "model": "folder", "num_speculative_tokens": 7}
    assert "--no-enable-prefix-caching" in words
    assert "--speculative-config" not in engine.command("python", {**run, "prefix_cache": True}, None, 8000)
    assert {run["drafter"] for run in engine.settings()} == set(engine.DRAFTERS)


class Ended:
    """A process that is over."""

    def poll(self):
        return 1


def test_a_server_that_does_not_start_is_told_with_its_last_words(tmp_path):
    (tmp_path / "log").write_text("loading\nRuntimeError: no room\n")
    with pytest.raises(DSparkLiteError, match="did not start .RuntimeError: no room."):
        local_server.ready(Ended(), "http://127.0.0.1:9/health", tmp_path / "log")


def test_a_server_that_breaks_down_later_is_told_with_its_first_error(tmp_path, monkeypatch):
    """The client hears only that there was no answer; the cause stands in the server's log."""
    def measure(*_):
        raise subprocess.CalledProcessError(1, "client", stderr="APIError: see the log")

    run = {"drafter": "dspark", "prefix_cache": True, "at_once": 1}
    monkeypatch.setattr(engine, "SCRATCH", tmp_path)
    monkeypatch.setattr(engine, "measure", measure)
    said = ["(pid 1) WARNING may cause errors like `OSError: too many`", "ready", "InductorError: no driver", "EngineDeadError: it ended"]
    (tmp_path / "dspark-True-1.log").write_text("\n".join(said))
    row = engine.tried(run, [], 1, ([], {}))
    assert row == {**run, "not_run": "the server started and broke down at a request (InductorError: no driver)"}
    assert engine.line(row).endswith("1 at once: not run: the server started and broke down at a request (InductorError: no driver)")
