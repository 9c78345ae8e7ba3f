"""Prompts of a data set, answers of a server, what a training will take: against stand-ins on this machine."""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import httpx
import pytest
import torch
from helpers import DRAFT, LANGUAGE_MODEL

from dspark_lite.__main__ import main
from dspark_course.common import formats
from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.decoding import generate
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_drafter, load_target
from dspark_course.making import answers, endpoint, estimate, recipes
from dspark_lite.training import cache
from dspark_course.world import prompts
from dspark_course.world.example import is_held_out
from dspark_course.world.tokenizer import chat_ids, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(400, seed=1, per_domain=40)


# Prompts -------------------------------------------------------------------------------------------------------------

DATA = {"split": "train", "prompts": 20, "max_length": 60, "max_new_tokens": 20, "seed": 7}


@pytest.fixture
def dataset(tmp_path):
    """A JSON file of forty rows in four layouts; the last ones are too long for the recipe."""
    path = tmp_path / "perfectblend.jsonl"
    rows = []
    for number in range(40):
        text = f"Question {number}?" + " and so on" * (50 if number > 35 else 0)
        rows.append([
            {"conversations": [{"from": "system", "value": "Be kind."}, {"from": "human", "value": text}]},
            {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "No."}]},
            {"conversations": [{"from": "gpt", "value": "Hello."}, {"from": "human", "value": text}]},
            {"turns": [text, "And then?"]}][number % 4])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_prompts_of_a_data_set_are_its_first_user_turns_in_a_seeded_order(dataset, tokenizer):
    found = prompts.prompt_ids(tokenizer, {**DATA, "dataset": str(dataset)})
    texts = [f"Question {number}?" for number in range(36)]
    allowed = [chat_ids(tokenizer, text) for text in texts if not is_held_out(text)]
    assert len(found) == 20 and all(ids in allowed for ids in found) and len(set(map(tuple, found))) == 20
    assert len(allowed) < 36  # some are held out
    assert found == prompts.prompt_ids(tokenizer, {**DATA, "dataset": str(dataset)})
    other = prompts.prompt_ids(tokenizer, {**DATA, "dataset": str(dataset), "seed": 8})
    assert found != other and found != sorted(found)
    folder = prompts.prompt_ids(tokenizer, {**DATA, "dataset": str(dataset.parent)})
    assert folder == found


@pytest.mark.parametrize(("changed", "sentence"), [
    ({"prompts": 36}, "has [23].* prompts of at most 40 tokens, the recipe asks for 36"),
    ({"split": "nonsense"}, "split 'nonsense'.* cannot be read"),
    ({"dataset": "/nowhere/at/all.jsonl"}, "'/nowhere/at/all.jsonl'.* cannot be read"),
])
def test_a_data_set_that_does_not_do_is_told(dataset, tokenizer, changed, sentence):
    with pytest.raises(DSparkLiteError, match=sentence) as caught:
        prompts.prompt_ids(tokenizer, {**DATA, "dataset": str(dataset), **changed})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("row", [
    {"text": "Hi"}, {"messages": []}, {"messages": None}, {"messages": "Hi"}, {"turns": [""]},
    {"conversations": [{"from": "gpt", "value": "Hi"}]}, {"messages": [{"role": "user", "content": ["an image"]}]}])
def test_a_row_of_another_layout_is_named(row):
    with pytest.raises(DSparkLiteError, match="row 3 of x has no user turn .* its fields are .*conversations"):
        prompts.first_turn(row, "row 3 of x")


# A server ------------------------------------------------------------------------------------------------------------


class Server:
    """An OpenAI-compatible server on loopback; `reply` maps a request to (status, body), and may be replaced."""

    def __init__(self):
        self.requests, self.lock = [], threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.lock:
                    outer.requests.append((self.path, request))
                    status, body = outer.reply(request)
                try:
                    self.send_response(status)
                    self.end_headers()
                    self.wfile.write(body.encode())
                except ConnectionError:
                    pass  # the client waited no longer

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @staticmethod
    def reply(request):
        return 200, completion(f"Answer to {len(request['prompt'])} tokens.")

    def asked(self):
        """How often each prompt was sent."""
        return Counter(tuple(request["prompt"]) for _, request in self.requests)


def completion(text, reason="stop", **more):
    return json.dumps({"choices": [{"text": text, "finish_reason": reason, **more}]})


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(endpoint, "FIRST_PAUSE", 0.001)
    found = Server()
    yield found
    found.http.shutdown()
    found.http.server_close()


WORLD = {"prompts": {"math": 4, "chat": 6}, "seed": 7, "max_new_tokens": 12}


@pytest.fixture
def target(tokenizer):
    """What the answers of a server need of a target."""
    return SimpleNamespace(tokenizer=tokenizer, name="org/model@main", stop_token_ids=(tokenizer.eos_token_id, 3))


def test_a_server_writes_the_answers_to_the_tokenised_prompts(server, target, tmp_path):
    path = tmp_path / "answers.jsonl"
    rows = answers.answered_rows(target, WORLD, path, server.url)
    wanted = prompts.prompt_ids(target.tokenizer, WORLD)
    assert [ids[:length] for ids, length in rows] == wanted
    for ids, length in rows:
        text = target.tokenizer.decode(ids[length:])
        assert text == f"Answer to {length} tokens.<|im_end|>" and ids[-1] == target.tokenizer.eos_token_id
    assert {where for where, _ in server.requests} == {"/v1/completions"}
    sent = [request for _, request in server.requests]
    assert {(r["model"], r["max_tokens"]) for r in sent} == {("org/model", 12)}
    assert {(r["temperature"], r["top_p"], r["top_k"]) for r in sent} == {(1.0, 1.0, -1)}
    assert sorted(r["seed"] for r in sent) == list(range(7, 17))
    neutral = {"repetition_penalty": 1.0, "min_p": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    assert all({name: r[name] for name in neutral} == neutral for r in sent)  # the server's defaults would be the model's own
    assert answers.answered_rows(target, WORLD, path, server.url + "/v1/") == rows and len(server.requests) == 10


@pytest.mark.parametrize(("choice", "sentence"), [
    ({"text": "x", "finish_reason": "abort"}, "ended by 'abort'"), ({"text": "x", "finish_reason": None}, "ended by None"),
    ({"text": None, "finish_reason": "stop"}, "its text is None"), ({"text": "", "finish_reason": "length"}, "its answer is empty"),
    ({"token_ids": [], "finish_reason": "length"}, "its answer is empty"),
    ({"token_ids": [99999], "finish_reason": "length"}, r"token_ids \[99999\] are not all ids of the target"),
    ({"token_ids": ["5"], "finish_reason": "length"}, "are not all ids of the target"),
    ({"token_ids": [5], "finish_reason": "stop", "stop_reason": "\n\n"}, "ended by the text"),
])
def test_replies_that_are_no_answer_of_the_target_are_refused(server, target, tmp_path, choice, sentence):
    """After as many tries as for a server that is busy; nothing is written down."""
    server.reply = lambda _: (200, json.dumps({"choices": [choice]}))
    with pytest.raises(DSparkLiteError, match=f"no completion in its reply, ValueError: .*{sentence}"):
        answers.answered_rows(target, {**WORLD, "prompts": {"math": 1}}, tmp_path / "answers.jsonl", server.url)
    assert len(server.requests) == endpoint.TRIES and (tmp_path / "answers.jsonl").read_text() == ""


def test_an_answer_that_another_stop_token_ended_keeps_it(server, target, tmp_path):
    choices = iter([{"token_ids": [40, 41, 3]}, {"token_ids": [40, 41], "stop_reason": 3}, {"token_ids": [40, 41]}])
    server.reply = lambda _: (200, json.dumps({"choices": [{**next(choices), "finish_reason": "stop"}]}))
    rows = answers.answered_rows(target, {**WORLD, "prompts": {"math": 3}}, tmp_path / "answers.jsonl", server.url)
    assert sorted(ids[length:] for ids, length in rows) == sorted([[40, 41, 3], [40, 41, 3], [40, 41, target.tokenizer.eos_token_id]])


def test_answers_are_the_targets_whatever_its_generation_config_asks_for():
    """Greedy ones are those of `generate`; the config is back afterwards."""
    target = load_target("tiny-target")
    texts = [chat_ids(target.tokenizer, text) for text in ("What is 3 * 4 + 5?", "Tell me of a fox.")]
    greedy = [generate(target, None, torch.tensor([ids]), max_new_tokens=30).token_ids for ids in texts]
    sampled = answers.write_answers(target, texts, 1.0, 30, 0)
    target.model.generation_config.update(repetition_penalty=1.6, no_repeat_ngram_size=2, bad_words_ids=[[11]], min_p=0.9, min_new_tokens=25)
    assert answers.write_answers(target, texts, 0.0, 30, 0) == greedy and answers.write_answers(target, texts, 1.0, 30, 0) == sampled
    assert target.model.generation_config.repetition_penalty == 1.6


def test_a_servers_own_token_ids_are_taken_and_a_cut_answer_has_no_stop_token(server, target, tmp_path):
    stop = target.tokenizer.eos_token_id
    choices = iter([{"token_ids": [5, 6]}, {"token_ids": [5, stop]}, {"token_ids": [5, 6], "reason": "length"},
                    {"text": "cut", "reason": "length"}] * 3)

    def reply(_):
        choice = next(choices)
        return 200, completion(choice.pop("text", ""), choice.pop("reason", "stop"), **choice)

    server.reply = reply
    rows = answers.answered_rows(target, {**WORLD, "prompts": {"math": 4}}, tmp_path / "answers.jsonl", server.url)
    cut = target.tokenizer("cut", add_special_tokens=False)["input_ids"]
    assert sorted(ids[length:] for ids, length in rows) == sorted([[5, 6, stop], [5, stop], [5, 6], cut])


@pytest.mark.parametrize("trouble", [
    (500, "out of memory"), (503, "starting"), (429, "too many"), (200, "{"), (200, "[]"), (200, '{"choices": []}'),
    (200, '{"choices": [{}]}')])
def test_trouble_that_passes_is_tried_again(server, target, tmp_path, trouble):
    def reply(request):
        return trouble if server.asked()[tuple(request["prompt"])] < 3 else Server.reply(request)

    server.reply = reply
    rows = answers.answered_rows(target, {**WORLD, "prompts": {"math": 3}}, tmp_path / "answers.jsonl", server.url)
    assert len(rows) == 3 and set(server.asked().values()) == {3}


def test_a_time_out_is_tried_again(server, target, tmp_path, monkeypatch):
    """No clock runs here: the client's time-out is raised for it."""
    post, tried = httpx.Client.post, []

    def times_out(client, *arguments, **options):
        tried.append(client.timeout)
        if len(tried) < 3:
            raise httpx.ReadTimeout("timed out")
        return post(client, *arguments, **options)

    monkeypatch.setattr(httpx.Client, "post", times_out)
    rows = answers.answered_rows(target, {**WORLD, "prompts": {"math": 1}}, tmp_path / "answers.jsonl", server.url)
    assert len(rows) == 1 and tried == [httpx.Timeout(endpoint.SECONDS)] * 3 and len(server.requests) == 1


def test_a_server_that_stops_half_way_loses_nothing(server, target, tmp_path, monkeypatch):
    monkeypatch.setattr(endpoint, "REQUESTS", 3)
    path, given = tmp_path / "answers.jsonl", Counter()

    def reply(request):
        if len(given) >= 4:
            return 503, "going down"
        given[tuple(request["prompt"])] += 1
        return Server.reply(request)

    server.reply = reply
    with pytest.raises(DSparkLiteError, match="gives no answer .503: going down.; what it answered is kept") as caught:
        answers.answered_rows(target, WORLD, path, server.url)
    assert "\n" not in str(caught.value)
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert {tuple(ids[:length]) for ids, length in kept} == set(given) and len(kept) == 4
    del server.reply
    server.requests.clear()
    rows = answers.answered_rows(target, WORLD, path, server.url)
    assert len(server.requests) == 6 and not set(server.asked()) & set(given)
    assert [ids[:length] for ids, length in rows] == prompts.prompt_ids(target.tokenizer, WORLD)
    assert all([*row] in [json.loads(line) for line in path.read_text().splitlines()] for row in rows)


def test_a_request_that_the_server_refuses_is_not_repeated(server, target, tmp_path):
    server.reply = lambda _: (404, '{"message": "no model\n org/model"}')
    with pytest.raises(DSparkLiteError, match=r"404: .*no model org/model"):
        answers.answered_rows(target, {**WORLD, "prompts": {"math": 1}}, tmp_path / "answers.jsonl", server.url)
    assert len(server.requests) == 1


def test_no_server_is_told(server, target, tmp_path):
    server.http.server_close()
    with pytest.raises(DSparkLiteError, match="gives no answer .ConnectError"):
        answers.answered_rows(target, {**WORLD, "prompts": {"math": 1}}, tmp_path / "answers.jsonl", server.url)
    assert issubclass(httpx.ConnectError, httpx.TransportError)


def test_a_half_written_answer_is_cut_off_and_a_foreign_one_refused(server, target, tmp_path):
    path = tmp_path / "answers.jsonl"
    rows = answers.answered_rows(target, WORLD, path, server.url)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:6]) + lines[6][:-3])
    server.requests.clear()
    assert answers.answered_rows(target, WORLD, path, server.url) == rows and len(server.requests) == 4
    for foreign in ("[[1, 2, 3], 2]\n", "{\n", lines[0]):
        path.write_text("".join(lines[:2]) + foreign)
        with pytest.raises(DSparkLiteError, match="line 3 of .*answers.jsonl is no answer .* delete this line"):
            answers.answered_rows(target, WORLD, path, server.url)


def test_a_prompt_that_is_asked_twice_has_two_answers(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text("[[1, 2, 5], 2]\n[[3, 6], 1]\n[[1, 2, 7], 2]\n")
    found = answers.read_answers(path, [[1, 2], [4], [1, 2], [3]])
    assert found == {0: ([1, 2, 5], 2), 3: ([3, 6], 1), 2: ([1, 2, 7], 2)}


def test_a_drafter_is_trained_for_a_target_folder_on_a_data_set_with_a_servers_answers(dataset, server, tmp_path):
    """The way of the recipe for Qwen3-0.6B, at the size of a toy."""
    (tmp_path / "mini.json").write_text(json.dumps({**LANGUAGE_MODEL, "phases": LANGUAGE_MODEL["phases"][1:]}))
    recipes.train(str(tmp_path / "mini.json"), device="cpu", out=tmp_path / "mini", build=tmp_path / "build")
    data = {**DATA, "dataset": str(dataset), "prompts": 8}
    (tmp_path / "draft.json").write_text(json.dumps({**DRAFT, "target": str(tmp_path / "mini"), "data": data}))
    options = {"device": "cpu", "out": tmp_path / "draft", "build": tmp_path / "build", "endpoint": server.url}
    recipes.train(str(tmp_path / "draft.json"), **options)
    assert len(server.requests) == 8 and len((tmp_path / "build/draft/log.jsonl").read_text().splitlines()) == 4
    target = load_target(str(tmp_path / "mini"))
    assert load_drafter(str(tmp_path / "draft"), target).gamma == 3


# What it will take ---------------------------------------------------------------------------------------------------


def test_the_published_cache_of_qwen3_4b_is_explained():
    recipe = recipes.load_recipe("qwen3-4b-dspark")
    text = "\n".join(estimate.cache_lines(recipe, recipe["target_config"], 1_300_000, recipe["mean_tokens"]))
    assert "(5 taps + 1) x 2,560 x 2 bytes = 30,720 bytes a token; 1,300,000 samples x 950 tokens: 37.9 TB" in text
    assert "as long as allowed, 4,096 tokens: 163.6 TB" in text
    assert "published: 38.0 TB = 1.24 billion tokens = 952 a sample, 23% of the longest" in text
    assert 38e12 / 30_720 / 1_300_000 == pytest.approx(952, abs=0.5)


def test_the_estimate_has_the_size_of_the_cache_that_is_then_written(tmp_path):
    target = toy_models(seed=3)[0]
    rows = [([1] * 50, 1)] * 40
    cache.build_cache(target, rows, (0, 1), tmp_path)
    written = sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    assert written == pytest.approx(40 * 50 * cache.token_bytes(2, 16), rel=0.01)


def test_a_dry_step_counts_parameters_operations_and_memory_without_weights():
    recipe = recipes.load_recipe("tiny-dspark", {"config.num_anchors": 24})
    step = estimate.dry_step(recipe, estimate.target_config(recipe), 100)
    target = load_target("tiny-target")
    drafter = load_drafter("tiny-dspark", target)
    assert step.trained + step.frozen == sum(value.numel() for value in drafter.state_dict().values())
    assert step.frozen == 2 * 3584 * 160 and step.target == sum(p.numel() for p in target.model.parameters())
    more = {**recipe, "config": {**recipe["config"], "num_anchors": 48}}
    twice = estimate.dry_step(more, estimate.target_config(recipe), 100)
    # Twice the slots, each with as many keys: the context and its own block; the context itself is no larger.
    assert 1.8 < twice.activations / step.activations < 2 and 1.8 < twice.operations / step.operations < 2
    # Forward and both gradients of every weight, for 24 * 7 slots; the context passes through a few of them.
    layers = sum(p.numel() for p in drafter.layers.parameters())
    assert step.operations > 6 * 168 * layers
    logits = 168 * 3584 * 4
    assert step.activations > 2 * logits


def test_saved_bytes_count_every_storage_once_and_no_parameter():
    weight = torch.nn.Parameter(torch.ones(4, 4))
    saved = estimate.SavedBytes([weight])
    with torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda tensor: tensor):
        hidden = torch.ones(3, 4) @ weight  # saves its input, 48 bytes
        (hidden * hidden).sum().backward()  # saves hidden twice, 48 bytes
    assert saved.total == 96


@pytest.mark.parametrize("name", ["tiny-dspark", "tiny-eagle3", "tiny-mtp", "qwen3-0.6b-dspark"])
def test_an_estimate_is_printed_and_nothing_is_trained(capsys, monkeypatch, name):
    monkeypatch.setattr(recipes, "train", None)
    if name.startswith("qwen"):  # its 16-bit products take a second on a CPU
        monkeypatch.setattr(estimate, "operations_a_second", lambda *_: 1e12)
    assert main(["train", name, "--estimate", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert heads == [f"{name}:", "target", "drafter", "memory", "time"]
    for words in ("bytes a token", "parameters trained", "a process", "for answers"):
        assert words in "\n".join(lines)


def test_a_target_without_a_config_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(DSparkLiteError, match="'org/model' could not be fetched .*HF_HUB_OFFLINE is set .* give the recipe a .target_config"):
        estimate.target_config({"target": "org/model"})
    with pytest.raises(DSparkLiteError, match="there is no checkpoint 'nonsense'"):
        estimate.target_config({"target": "nonsense"})


def test_sizes_and_durations_for_a_reader():
    sizes = {30: "30 bytes", 3e3: "3.0 kB", 38e12: "38.0 TB", 1.64e16: "16,400.0 TB"}
    assert {value: formats.size(value) for value in sizes} == sizes
    durations = {0.2: "1 s", 89: "89 s", 600: "10 min", 5400: "1.5 h", 9000: "2.5 h", 3e6: "35 d"}
    assert {value: formats.duration(value) for value in durations} == durations


def test_a_cache_that_the_disk_cannot_hold_is_refused_before_it_is_begun(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(DSparkLiteError, match="the target cache needs .* GB more in .*, which has 0.0 GB free"):
        cache.build_cache(toy_models(seed=3)[0], [([1] * 50, 1)], (0, 1), tmp_path)
    assert not list(tmp_path.glob("shard*"))
