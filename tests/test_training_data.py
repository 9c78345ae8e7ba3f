"""Prompts of a data set, answers of a server, what a training will take: against stand-ins on this machine."""

import copy
import json
import shutil
import threading
from collections import Counter
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import httpx
import pytest

from dspark_lite.__main__ import main
from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.course import formats
from dspark_lite.course.data import answers, endpoint, estimate, recipes
from dspark_lite.course.world import prompt_files, prompts
from dspark_lite.course.world.example import is_held_out
from dspark_lite.course.world.tokenizer import chat_ids, train_tokenizer
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import EMBEDDED, load_drafter, load_target
from dspark_lite.training import cache
from dspark_lite.training.recipe import Data, without_nones
from helpers import DRAFT, LANGUAGE_MODEL, recipe_of, set_config


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(400, seed=1, per_domain=40)


# Prompts

DATA = Data(prompts=20, seed=7, max_new_tokens=20, split="train", max_length=60)


@pytest.fixture
def dataset(tmp_path):
    """A JSON file of forty rows in four layouts; the last ones are too long for the recipe."""
    path = tmp_path / "perfectblend.jsonl"
    rows = []
    for number in range(40):
        text = f"Question {number}?" + " and so on" * (50 if number > 35 else 0)
        rows.append(
            [
                {"prompt": text},
                {
                    "messages": [
                        {"role": "user", "content": text},
                        {"role": "assistant", "content": "No."},
                    ]
                },
                {
                    "conversations": [
                        {"from": "gpt", "value": "Hello."},
                        {"from": "human", "value": text},
                    ]
                },
                {"turns": [text, "And then?"]},
            ][number % 4]
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_prompts_of_a_data_set_are_its_first_user_turns_in_a_seeded_order(dataset, tokenizer):
    found = prompts.prompt_ids(tokenizer, replace(DATA, dataset=str(dataset)))
    texts = [f"Question {number}?" for number in range(36)]
    allowed = [chat_ids(tokenizer, text) for text in texts if not is_held_out(text)]
    assert (
        len(found) == 20
        and all(ids in allowed for ids in found)
        and len(set(map(tuple, found))) == 20
    )
    assert len(allowed) < 36  # some are held out
    other = prompts.prompt_ids(tokenizer, replace(DATA, dataset=str(dataset), seed=8))
    assert found != other and found != sorted(found)
    every = replace(DATA, prompts=len(allowed))  # a folder is shuffled by `datasets`
    ids = [
        sorted(prompts.prompt_ids(tokenizer, replace(every, dataset=str(place))))
        for place in (dataset, dataset.parent)
    ]
    assert ids[0] == ids[1] == sorted(allowed)


def test_a_file_may_have_fewer_prompts_than_the_recipe_asks_for(dataset, tokenizer):
    data = replace(DATA, dataset=str(dataset), prompts=1000, split=None)
    allowed = [number for number in range(36) if not is_held_out(f"Question {number}?")]
    assert len(prompts.prompt_ids(tokenizer, data)) == len(allowed)
    held_out = prompts.held_out_of(replace(data, max_length=None), 1000)
    texts = {f"Question {number}?" for number in range(36)} - {f"Question {n}?" for n in allowed}
    assert {prompt.text for prompt in held_out if len(prompt.text) < 60} == texts


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"prompts": 36, "dataset": "its folder"},
            "has [23].* prompts of at most 40 tokens, the recipe asks for 36",
        ),
        ({"split": "nonsense"}, "split 'nonsense'.* cannot be read"),
        ({"dataset": "/nowhere/at/all.jsonl"}, "'/nowhere/at/all.jsonl'.* cannot be read"),
    ],
)
def test_a_data_set_that_does_not_do_is_told(dataset, tokenizer, changed, sentence):
    changed = {"dataset": str(dataset), **changed}
    if changed["dataset"] == "its folder":
        changed["dataset"] = str(dataset.parent)
    with pytest.raises(DSparkLiteError, match=sentence) as caught:
        prompts.prompt_ids(tokenizer, replace(DATA, **changed))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        (None, None),
        (["Hi"], None),
        ({"label": "Hi"}, None),
        ({"text": "Once upon"}, [(None, "Once upon")]),
        ({"text": 5}, None),
        ({"messages": []}, None),
        ({"messages": None}, None),
        ({"messages": "Hi"}, None),
        ({"messages": [None, {"role": "user"}]}, None),
        ({"turns": [""]}, None),
        ({"turns": ["Hi", "And?"]}, [("user", "Hi")]),
        ({"conversations": [{"from": "gpt", "value": "Hi"}]}, None),
        (
            {"conversations": [{"from": "gpt", "value": "a"}, {"from": "human", "value": "b"}]},
            [("user", "b")],
        ),
        ({"messages": [{"role": "user", "content": ["an image"]}]}, None),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, None),
        (
            {"messages": [{"role": "user", "content": [{"text": "Hi "}, {"text": "you"}]}]},
            [("user", "Hi you")],
        ),
        (
            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]},
            [("system", "s"), ("user", "u")],
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image"}, {"text": "What is this?"}]},
                    {"role": "assistant", "content": "A cat."},
                    {"role": "user", "content": "And its colour?"},
                ]
            },
            None,
        ),
        ({"prompt": "Hi"}, [("user", "Hi")]),
        ({"prompt": [{"role": "user", "content": "Hi"}]}, [("user", "Hi")]),
        ({"instruction": "Say", "input": "", "output": "x"}, [("user", "Say")]),
        ({"instruction": "Say", "input": "hi"}, [("user", "Say\n\nhi")]),
        ({"instruction": "Say", "input": None}, [("user", "Say")]),
        ({"instruction": "Add", "input": 5}, None),
        ({"instruction": "Add", "input": {"a": 5}}, None),
        ({"instruction": " "}, None),
    ],
)
def test_the_opening_of_a_row_is_read_in_every_layout(row, messages):
    found = prompt_files.prompts_of_row(row)
    assert [list(prompt.turns) for prompt in found] == ([messages] if messages else [])


CHAT = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": [{"text": "c"}]},
]


@pytest.mark.parametrize(
    ("turns", "wanted"),
    [
        (CHAT, ["a", "sabc"]),
        ([*CHAT, {"role": "assistant", "content": "d"}], ["a", "sabc"]),
        ([*CHAT[:3], {"role": "tool", "content": "t"}, CHAT[3]], ["a"]),
        ([*CHAT[:2], {"role": "assistant", "content": None}, CHAT[3]], ["a"]),
        ([*CHAT[:3], {"role": "user", "content": [{"type": "image"}]}, CHAT[1]], ["a"]),
        (CHAT[2:], ["c"]),
    ],
)
def test_each_user_turn_is_a_prompt_after_all_turns_before_it(turns, wanted):
    found = prompt_files.prompts_of_row({"messages": turns}, every_turn=True)
    texts = ["".join(text for _, text in prompt.turns) for prompt in found]
    assert texts[0].removeprefix("s") == wanted[0] and texts[1:] == wanted[1:]
    assert [prompt.turns[-1][0] for prompt in found] == ["user"] * len(found)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_text_file_is_cut_into_passages_that_lose_no_word(tmp_path, tokenizer, mark):
    words = [f"word{number}ö" for number in range(4000)]
    text = "\n\n".join(
        [" ".join(words[:30]), "\n".join(words[30:900]), " ".join(words[900:]), "\n \n"]
    )
    path = tmp_path / "my.txt"
    path.write_text(mark + text, encoding="utf-8")
    found, unread = prompt_files.read_prompts(path)
    assert not unread.lines and " ".join(p.text for p in found).split() == words
    assert max(len(prompt.text) for prompt in found) <= 3 * prompt_files.PASSAGE
    lines = text.split("\n")
    for line, row in prompt_files.file_rows(path):
        assert row["text"].split()[0] in lines[line - 1]
    data = replace(DATA, dataset=str(path), prompts=10**6, max_length=30, split=None)
    ids = prompts.prompt_ids(tokenizer, data)
    assert max(map(len, ids)) == 10 and len(ids) > len(found) / 2  # a passage is cut to its room


def test_lines_that_are_no_json_are_passed_over_and_an_array_is_read(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt"\n\n{"prompt": "b"}\n[]\n', encoding="utf-8")
    found, unread = prompt_files.read_prompts(path)
    assert [prompt.text for prompt in found] == ["a", "b"] and unread.lines == [2, 5]
    path.write_text('[{"prompt": "a"},\n {"prompt": "a"}, {}]', encoding="utf-8")
    found, unread = prompt_files.read_prompts(path)
    assert [prompt.text for prompt in found] == ["a"] and unread.lines == [3]


def test_without_a_chat_template_turns_are_plain_text(tokenizer):
    plain = copy.deepcopy(tokenizer)
    plain.chat_template = None
    turns = (("system", "Be brief."), ("user", "Hi"))
    assert prompt_files.Prompt(turns).token_ids(plain) == plain("Be brief.\n\nHi")["input_ids"]
    text = prompt_files.Prompt(((None, "Hi"),))
    assert text.token_ids(tokenizer) == text.token_ids(plain) == plain("Hi")["input_ids"]
    assert prompt_files.Prompt((("user", "Hi"),)).token_ids(tokenizer) == chat_ids(tokenizer, "Hi")


def test_odd_rows_are_passed_over_and_named_by_their_number(tmp_path, tokenizer):
    rows = [{"prompt": f"Question {number}?"} for number in range(30)]
    rows[4] = rows[17] = {"prompt": "  "}
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = replace(DATA, dataset=str(path), prompts=1000)
    with pytest.warns(UserWarning, match=r"2 rows of .* hold no .*\(row 5, 18\) and were passed"):
        found = prompts.prompt_ids(tokenizer, data)
    kept = sum(not is_held_out(row["prompt"]) for row in rows if row["prompt"].strip())
    assert len(found) == kept


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        (None, "no chat template"),
        ("{{ raise_exception('roles must alternate') }}", "refuses .* user .*roles must alternate"),
    ],
)
def test_a_tokenizer_that_cannot_put_a_question_says_so(tokenizer, template, sentence):
    other = copy.deepcopy(tokenizer)
    other.chat_template = template
    with pytest.raises(DSparkLiteError, match=sentence):
        chat_ids(other, "Hi")


# A server


class Server:
    """An OpenAI-compatible server within this process; `reply` maps a request to (status, body), and may be replaced."""

    url = "http://server"

    def __init__(self):
        self.requests, self.lock = [], threading.Lock()

    def handle(self, request):
        with self.lock:
            self.requests.append(
                (
                    request.url.path,
                    json.loads(request.content),
                    request.extensions["timeout"]["read"],
                )
            )
            status, body = self.reply(self.requests[-1][1])
        return httpx.Response(status, text=body)

    @staticmethod
    def reply(request):
        choice = {"text": f"Answer to {len(request['prompt'])} tokens.", "finish_reason": "stop"}
        return 200, json.dumps({"choices": [choice]})

    def asked(self):
        """How often each prompt was sent."""
        return Counter(tuple(request["prompt"]) for _, request, _ in self.requests)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(endpoint, "FIRST_PAUSE", 0.001)
    found = Server()
    monkeypatch.setattr(
        httpx, "Client", partial(httpx.Client, transport=httpx.MockTransport(found.handle))
    )
    return found


WORLD = Data(prompts={"math": 4, "chat": 6}, seed=7, max_new_tokens=12)


@pytest.mark.parametrize("where", ["world", "data set"])
def test_prompts_of_a_training_leave_room_for_thinking_where_the_data_say_so(
    dataset, tokenizer, where
):
    data = replace(DATA, dataset=str(dataset)) if where == "data set" else WORLD
    off, on = (
        prompts.prompt_ids(tokenizer, replace(data, enable_thinking=thinking))
        for thinking in (False, True)
    )
    empty = tokenizer("<think>\n\n</think>\n\n", add_special_tokens=False)["input_ids"]
    assert off == [ids + empty for ids in on] and len(off) > 3


@pytest.fixture
def target(tokenizer):
    """What the answers of a server need of a target."""
    return SimpleNamespace(
        tokenizer=tokenizer,
        name="org/model@main",
        vocab_size=400,
        stop_token_ids=(tokenizer.eos_token_id, 3),
    )


@pytest.fixture
def path(tmp_path):
    """Where answers are kept."""
    return tmp_path / "answers.jsonl"


@pytest.fixture
def answered(server, target, path):
    """The rows of WORLD, or of so many prompts of its math, with the server's answers."""

    def rows(math=None):
        return answers.answered_rows(
            target,
            WORLD if math is None else replace(WORLD, prompts={"math": math}),
            path,
            server.url,
        )

    return rows


def test_a_server_writes_the_answers_to_the_tokenised_prompts(answered, server, target, path):
    rows = answered()
    assert [ids[:length] for ids, length in rows] == prompts.prompt_ids(target.tokenizer, WORLD)
    for ids, length in rows:
        text = target.tokenizer.decode(ids[length:])
        assert (
            text == f"Answer to {length} tokens.<|im_end|>"
            and ids[-1] == target.tokenizer.eos_token_id
        )
    assert {(where, seconds) for where, _, seconds in server.requests} == {
        ("/v1/completions", endpoint.SECONDS)
    }
    sent = [request for _, request, _ in server.requests]
    # The server's defaults would be the model's own.
    wanted = {
        "model": "org/model",
        "max_tokens": 12,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "repetition_penalty": 1.0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }
    assert all(request.items() >= wanted.items() for request in sent) and sorted(
        request["seed"] for request in sent
    ) == list(range(7, 17))
    assert (
        answers.answered_rows(target, WORLD, path, server.url + "/v1/") == rows
        and len(server.requests) == 10
    )


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"text": "x", "finish_reason": "abort"}, "ended by 'abort'"),
        ({"text": "x", "finish_reason": None}, "ended by None"),
        ({"text": None, "finish_reason": "stop"}, "its text is None"),
        ({"text": "", "finish_reason": "length"}, "its answer is empty"),
        ({"token_ids": [], "finish_reason": "length"}, "its answer is empty"),
        (
            {"token_ids": [99999], "finish_reason": "length"},
            r"token_ids \[99999\] are not all ids of the target",
        ),
        ({"token_ids": ["5"], "finish_reason": "length"}, "are not all ids of the target"),
        ({"token_ids": [5], "finish_reason": "stop", "stop_reason": "\n\n"}, "ended by the text"),
    ],
)
def test_replies_that_are_no_answer_of_the_target_are_refused(
    answered, server, path, choice, sentence
):
    """After as many tries as for a server that is busy; nothing is written down."""
    server.reply = lambda _: (200, json.dumps({"choices": [choice]}))
    with pytest.raises(
        DSparkLiteError, match=f"no completion in its reply, ValueError: .*{sentence}"
    ):
        answered(math=1)
    assert len(server.requests) == endpoint.TRIES and path.read_text() == ""


def test_a_servers_own_token_ids_are_taken_with_the_stop_token_that_ended_them(
    answered, server, target
):
    end = target.tokenizer.eos_token_id
    cut = target.tokenizer("cut", add_special_tokens=False)["input_ids"]
    given = [
        ({"token_ids": [5, 6]}, [5, 6, end]),
        ({"token_ids": [5, end]}, [5, end]),
        ({"token_ids": [40, 41, 3]}, [40, 41, 3]),
        ({"token_ids": [40, 41], "stop_reason": 3}, [40, 41, 3]),
        ({"token_ids": [5, 6], "finish_reason": "length"}, [5, 6]),
        ({"text": "cut", "finish_reason": "length"}, cut),
    ]
    choices = iter([choice for choice, _ in given])
    server.reply = lambda _: (
        200,
        json.dumps({"choices": [{"finish_reason": "stop", **next(choices)}]}),
    )
    with pytest.warns(
        UserWarning,
        match="tells the text of its answers and not their token ids; 1 texts were tokenised again",
    ):
        rows = answered(math=6)
    assert sorted(ids[length:] for ids, length in rows) == sorted(answer for _, answer in given)


@pytest.mark.parametrize(
    "trouble",
    [
        (500, "out of memory"),
        (429, "too many"),
        (200, "{"),
        (200, "[]"),
        (200, '{"choices": []}'),
        (200, '{"choices": [{}]}'),
        httpx.ReadTimeout("timed out"),
    ],
)
def test_trouble_that_passes_is_tried_again(answered, server, trouble):
    def reply(request):
        if server.asked()[tuple(request["prompt"])] == 3:
            return Server.reply(request)
        if isinstance(trouble, Exception):
            raise trouble
        return trouble

    server.reply = reply
    assert len(answered(math=3)) == 3 and set(server.asked().values()) == {3}


def test_a_server_that_stops_half_way_loses_nothing(answered, server, target, path, monkeypatch):
    monkeypatch.setattr(endpoint, "REQUESTS", 3)
    given = Counter()

    def reply(request):
        if len(given) >= 4:
            return 503, "going down"
        given[tuple(request["prompt"])] += 1
        return Server.reply(request)

    server.reply = reply
    with pytest.raises(
        DSparkLiteError, match="gives no answer .503: going down.; what it answered is kept"
    ) as caught:
        answered()
    assert "\n" not in str(caught.value)
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert {tuple(ids[:length]) for ids, length in kept} == set(given) and len(kept) == 4
    del server.reply
    server.requests.clear()
    rows = answered()
    assert len(server.requests) == 6 and not set(server.asked()) & set(given)
    assert [ids[:length] for ids, length in rows] == prompts.prompt_ids(target.tokenizer, WORLD)
    assert all(
        [*row] in [json.loads(line) for line in path.read_text().splitlines()] for row in rows
    )


def test_a_request_that_the_server_refuses_is_not_repeated_and_no_server_is_told(answered, server):
    server.reply = lambda _: (404, '{"message": "no model\n org/model"}')
    with pytest.raises(DSparkLiteError, match=r"404: .*no model org/model"):
        answered(math=1)
    assert len(server.requests) == 1

    def refuses(_):
        raise httpx.ConnectError("refused")

    server.reply = refuses
    with pytest.raises(DSparkLiteError, match="gives no answer .ConnectError"):
        answered(math=1)


def test_a_half_written_answer_is_cut_off_a_second_one_passed_over_and_a_foreign_one_refused(
    answered, server, path
):
    rows = answered()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:6]) + lines[6][:-3])
    server.requests.clear()
    assert answered() == rows and len(server.requests) == 4
    path.write_text("".join([*lines, *lines]))  # as two runs at once leave them
    assert answered() == rows and len(server.requests) == 4
    beyond = json.dumps([[*rows[0][0], 400], rows[0][1]]) + "\n"
    for foreign in ("[[1, 2, 3], 2]\n", "{\n", beyond):
        path.write_text("".join(lines[:2]) + foreign)
        with pytest.raises(
            DSparkLiteError, match="line 3 of .*answers.jsonl is no answer .* delete this line"
        ):
            answered()


def test_a_prompt_that_is_asked_twice_has_two_answers(path):
    path.write_text("[[1, 2, 5], 2]\n[[3, 6], 1]\n[[1, 2, 7], 2]\n")
    found = answers.read_answers(path, [[1, 2], [4], [1, 2], [3]], 8)
    assert found == {0: ([1, 2, 5], 2), 3: ([3, 6], 1), 2: ([1, 2, 7], 2)}


def test_a_drafter_is_trained_for_a_target_folder_on_a_data_set_with_a_servers_answers(
    dataset, server, tmp_path
):
    """The way of the recipe for Qwen3-0.6B, at the size of a toy."""
    (tmp_path / "mini.json").write_text(
        json.dumps({**LANGUAGE_MODEL, "phases": LANGUAGE_MODEL["phases"][1:]})
    )
    recipes.train(
        str(tmp_path / "mini.json"), device="cpu", out=tmp_path / "mini", build=tmp_path / "build"
    )
    data = without_nones(replace(DATA, dataset=str(dataset), prompts=8))
    (tmp_path / "draft.json").write_text(
        json.dumps({**DRAFT, "target": str(tmp_path / "mini"), "data": data})
    )
    options = {
        "device": "cpu",
        "out": tmp_path / "draft",
        "build": tmp_path / "build",
        "endpoint": server.url,
    }
    recipes.train(str(tmp_path / "draft.json"), **options)
    assert (
        len(server.requests) == 8
        and len((tmp_path / "build/draft/log.jsonl").read_text().splitlines()) == 4
    )
    target = load_target(str(tmp_path / "mini"))
    assert load_drafter(str(tmp_path / "draft"), target).gamma == 3


# What it will take


def test_the_published_cache_of_qwen3_4b_is_explained():
    recipe = recipes.load_recipe("qwen3-4b-dspark")
    text = "\n".join(estimate.cache_lines(recipe, recipe.target_config))
    assert (
        "(5 taps + 1) x 2,560 x 2 bytes = 30,720 bytes a token; 1,300,000 samples x 950 tokens: 37.9 TB"
        in text
    )
    assert "published: 38.0 TB = 1.24 billion tokens = 952 a sample" in text


def test_the_estimate_has_the_size_of_the_cache_that_is_then_written(tmp_path):
    target = toy_models(seed=3)[0]
    rows = [([1] * 50, 1)] * 40
    cache.build_cache(target, rows, (0, 1), tmp_path)
    written = sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    assert written == pytest.approx(40 * 50 * cache.token_bytes(2, 16), rel=0.01)


# Counted once by running an update on tensors without numbers: parameters trained, of the target; operations and bytes of
# activations of a sample.
COUNTED = {
    "tiny-dspark": (1_792_033, 6_725_280, 6.70e9, 6.23e7),
    "tiny-eagle3": (471_744, 6_725_280, 8.66e9, 6.29e7),
    "tiny-mtp": (359_264, 6_725_280, 1.21e9, 1.02e7),
    "evening": (161_692_161, 596_049_920, 4.17e11, 6.43e8),
    "qwen3-4b-heads": (77_794_049, 4_022_468_096, 6.88e11, 4.11e8),
    "qwen3-4b-dspark": (615_221_249, 4_022_468_096, 2.12e13, 1.48e10),
}


@pytest.mark.parametrize("name", COUNTED)
def test_the_formula_has_what_an_update_was_counted_to_take(name):
    trained, target, operations, activations = COUNTED[name]
    recipe = recipes.load_recipe(name)
    found = estimate.cost(recipe, estimate.target_config(recipe))
    assert found.trained == pytest.approx(trained, rel=0.15)  # of matrices alone
    assert found.target == pytest.approx(target, rel=0.02)
    assert 1 / 2 < found.operations / operations < 2
    assert 1 / 2 < found.activations / activations < 2


def test_twice_the_blocks_take_twice_the_work_and_heads_alone_train_heads_alone():
    recipe = recipes.load_recipe("tiny-dspark")
    config, one = estimate.target_config(recipe), recipe.config.num_anchors
    once, twice = (
        estimate.cost(replace(recipe, config=replace(recipe.config, num_anchors=count)), config)
        for count in (one, 2 * one)
    )
    assert twice.operations == 2 * once.operations and twice.activations == 2 * once.activations
    heads = estimate.cost(replace(recipe, trained="heads"), config)
    assert heads.trained == 2 * 3584 * 64 and heads.trained + heads.frozen == once.trained


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


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["LlamaForCausalLM"]},
        {"logits_scaling": 4.0},
        {"num_hidden_layers": 3},
    ],
)
def test_an_estimate_refuses_a_target_as_the_training_does(tmp_path, capsys, changes):
    folder = shutil.copytree(EMBEDDED / "tiny-target", tmp_path / "target")
    set_config(folder, **changes)
    call = ["train", "evening-tiny", "--device", "cpu", "--set", f"target={folder}"]
    said = []
    for more in (["--estimate"], ["--out", str(tmp_path / "out")]):
        assert main([*call, *more]) == 2
        said.append(capsys.readouterr().err.splitlines()[-1])
    assert said[0] == said[1]
    with pytest.raises(DSparkLiteError) as trained:
        recipes.train("evening-tiny", changes={"target": str(folder)}, device="cpu", out=tmp_path)
    assert str(trained.value) in said[0]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"label": "Hi"}\n' * 9,
        b'{"prompt"',
        '{"prompt": "ö"}'.encode("latin-1"),
    ],
    ids=["empty", "no layout", "cut off", "not UTF-8"],
)
def test_an_estimate_refuses_rows_as_the_training_does(tmp_path, capsys, monkeypatch, content):
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(content)
    recipe = {
        "extends": "evening-tiny",
        "data": {
            "dataset": str(rows),
            "split": "train",
            "prompts": 4,
            "max_length": 90,
            "max_new_tokens": 20,
        },
    }
    (tmp_path / "mine.json").write_text(json.dumps(recipe), encoding="utf-8")
    monkeypatch.setattr(recipes, "BUILD", tmp_path / "build")
    said = []
    for more in (["--estimate"], ["--out", str(tmp_path / "out")]):
        assert main(["train", str(tmp_path / "mine.json"), "--device", "cpu", *more]) == 2
        said.append(capsys.readouterr().err.splitlines()[-1])
    assert said[0] == said[1] and "rows.jsonl" in said[0]
    rows.write_text('\ufeff{"prompt": "Größe?"}\n' + '{"prompt": "Hi"}\n' * 9, encoding="utf-8")
    assert main(["train", str(tmp_path / "mine.json"), "--device", "cpu", "--estimate"]) == 0


def test_the_config_of_another_target_is_not_estimated(tmp_path):
    name = "qwen3-0.6b-dspark"
    held = recipes.load_recipe(name).target_config
    assert recipes.load_recipe(name, {"target": "Qwen/Qwen3-0.6B"}).target_config == held
    assert recipes.load_recipe(name, {"target": "tiny-target"}).target_config is None
    own = {"target": "tiny-target", "target_config.vocab_size": 7}
    assert recipes.load_recipe(name, own).target_config == {"vocab_size": 7}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"extends": name, "target": "tiny-target"}), encoding="utf-8")
    assert recipes.load_recipe(str(path)).target_config is None
    assert recipes.load_recipe("evening-1.7b").target_config == held | {
        "hidden_size": 2048,
        "intermediate_size": 6144,
    }


def test_a_target_that_is_not_there_is_told():
    """From the Hub: test_doctor.py."""
    with pytest.raises(DSparkLiteError, match="there is no checkpoint 'nonsense'"):
        estimate.target_config(recipe_of(DRAFT, target="nonsense"))


def test_sizes_and_durations_for_a_reader():
    sizes = {30: "30 bytes", 3e3: "3.0 kB", 38e12: "38.0 TB", 1.64e16: "16,400.0 TB"}
    assert {value: formats.size(value) for value in sizes} == sizes
    durations = {0.2: "1 s", 89: "89 s", 600: "10 min", 5400: "1.5 h", 9000: "2.5 h", 3e6: "35 d"}
    assert {value: formats.duration(value) for value in durations} == durations


def test_a_cache_that_the_disk_cannot_hold_is_refused_before_it_is_begun(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(
        DSparkLiteError, match="the target cache needs .* GB more in .*, which has 0.0 GB free"
    ):
        cache.build_cache(toy_models(seed=3)[0], [([1] * 50, 1)], (0, 1), tmp_path)
    assert not list(tmp_path.glob("shard*"))
