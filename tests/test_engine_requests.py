"""What requests of one engine may have of their own, whole lists of prompts, and text while it is written."""

import asyncio
import time
from collections import Counter

import pytest
import torch
import transformers
from scipy.stats import chisquare

from dspark_lite.common.errors import RequestError
from dspark_lite.course.measure.evaluation import position_counts
from dspark_lite.course.world.tokenizer import train_tokenizer
from dspark_lite.decoding import generate, stream_text
from dspark_lite.decoding.answer import Acceptance, Round
from dspark_lite.decoding.sampling import nucleus, probabilities
from dspark_lite.decoding.text import TextPieces
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.serving.engine import Engine, Request

VOCAB, GAMMA, NEW = 13, 4, 14
TARGET, DRAFTERS = toy_models(seed=1, vocab_size=VOCAB, gamma=GAMMA)
PROMPTS = [
    torch.randint(VOCAB, (1, 2 + n), generator=torch.Generator().manual_seed(n)) for n in range(6)
]


def engine(name="dspark", **options):
    """An engine of toy models without stop tokens unless some are given."""
    defaults = {"slots": 4, "capacity": 40, "stop_token_ids": ()}
    return Engine(TARGET, DRAFTERS.get(name), **{**defaults, **options})


def served(requests, **options):
    """The answers of an engine to these requests, in their order."""
    serving = engine(**options)
    numbers, answers = [serving.submit(request) for request in requests], {}
    while not serving.idle:
        answers |= {answer.id: answer for answer in serving.step().answers}
    return [answers[number] for number in numbers]


@pytest.mark.parametrize("name", [None, "dspark", "dflash", "eagle3", "mtp"])
def test_requests_of_other_temperatures_share_steps_and_change_no_text(name):
    temperatures = [0.0, 0.7, None, 1.5, 0.0, 0.7]
    requests = [
        Request(prompt, NEW, seed=number, temperature=temperature)
        for number, (prompt, temperature) in enumerate(zip(PROMPTS, temperatures))
    ]
    together = served(requests, name=name, temperature=1.0)
    for request, answer in zip(requests, together):
        at = 1.0 if request.temperature is None else request.temperature
        alone = Request(request.input_ids, NEW, seed=request.seed)
        (wanted,) = served([alone], name=name, temperature=at)
        assert answer.token_ids == wanted.token_ids
        if at == 0:
            plain = generate(TARGET, None, request.input_ids, max_new_tokens=NEW, stop_token_ids=())
            assert answer.token_ids == plain.token_ids


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 1.0])
def test_top_p_keeps_what_transformers_keeps(share):
    logits = torch.randn(3, 2, VOCAB, generator=torch.Generator().manual_seed(5))
    shares = torch.tensor([share, 1.0, share / 2])
    found = nucleus(probabilities(logits, 1.0), shares)
    for row, own in zip(range(3), shares.tolist()):
        warped = transformers.TopPLogitsWarper(own)(None, logits[row].clone())
        assert torch.allclose(found[row], warped.softmax(-1), atol=1e-6)


def test_a_top_p_of_its_own_gives_the_distribution_within_it():
    """4,000 answers of three tokens, drafts in each: chi-square, false alarm 1 in 10,000."""
    count, share, prompt = 4000, 0.8, PROMPTS[3]
    expected = {}

    def fill(tokens, weight):
        ids = torch.cat([prompt, torch.tensor([tokens], dtype=torch.long)], 1)
        if len(tokens) == 3:
            expected[tuple(tokens)] = weight
            return
        logits = TARGET.prefill(ids)[0].logits[:, -1]
        probs = nucleus(probabilities(logits, 0.9), torch.tensor([share]))[0]
        for token in probs.nonzero()[:, 0].tolist():
            fill([*tokens, token], weight * probs[token].item())

    fill([], 1.0)
    requests = [
        Request(prompt, 3, seed=seed, temperature=0.9, top_p=share) for seed in range(count)
    ]
    found = Counter(tuple(answer.token_ids) for answer in served(requests, slots=128, capacity=16))
    assert found.keys() <= expected.keys()
    often = [tokens for tokens, weight in expected.items() if weight * count >= 5]
    cells = [(found[tokens], expected[tokens] * count) for tokens in often]
    rest = (count - sum(a for a, _ in cells), count - sum(b for _, b in cells))
    cells += [rest] if rest[1] >= 5 else []
    observed, wanted = zip(*cells)
    scaled = [value * sum(observed) / sum(wanted) for value in wanted]
    assert chisquare(observed, scaled).pvalue > 1e-4 and len(cells) > 10


def test_drafts_and_stop_tokens_of_its_own():
    whole = served([Request(prompt, NEW) for prompt in PROMPTS[:4]])
    stop = whole[3].token_ids[5]
    requests = [
        Request(PROMPTS[0], NEW, num_speculative_tokens=0),
        Request(PROMPTS[1], NEW, num_speculative_tokens=2),
        Request(PROMPTS[2], NEW),
        Request(PROMPTS[3], NEW, stop_token_ids=[stop]),
    ]
    found = served(requests)
    assert [a.token_ids for a in found[:3]] == [a.token_ids for a in whole[:3]]
    most = [max(played.proposed for played in answer.rounds) for answer in found[:3]]
    assert most == [0, 2, GAMMA]
    tokens = whole[3].token_ids
    assert found[3].token_ids == tokens[: tokens.index(stop) + 1] and found[3].reason == "stop"
    limited = served([Request(PROMPTS[2], NEW)], num_speculative_tokens=1)[0]
    assert max(played.proposed for played in limited.rounds) == 1
    assert limited.token_ids == whole[2].token_ids


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"temperature": -1}, "temperature is -1"),
        ({"top_p": 0}, "top_p is 0"),
        ({"top_p": "much"}, "top_p is 'much'"),
        ({"stop_token_ids": 3}, "stop_token_ids is 3"),
        (
            {"num_speculative_tokens": 5},
            "num_speculative_tokens is 5; this engine drafts between 0",
        ),
        ({"num_speculative_tokens": 1.5}, "num_speculative_tokens is 1.5"),
    ],
)
def test_what_a_request_cannot_have_is_refused_when_it_is_submitted(fields, sentence):
    serving = engine()
    with pytest.raises(RequestError, match=sentence):
        serving.submit(Request(PROMPTS[0], NEW, **fields))
    assert serving.idle
    if "num_speculative_tokens" in fields:
        with pytest.raises(RequestError, match=sentence):
            engine(**fields)


def test_acceptance_is_totalled_by_position_as_an_evaluation_does():
    serving = engine(temperature=1.0)
    answers = serving.generate([prompt for prompt in PROMPTS], NEW)
    counts = position_counts(answers, GAMMA).sum(0)
    totals = serving.acceptance
    assert totals.accepted == counts[:, 0].tolist() and totals.reached == counts[:, 1].tolist()
    rounds = [played for answer in answers for played in answer.rounds]
    assert totals.rounds == len(rounds)
    assert totals.accepted_length == sum(r.committed for r in rounds) / len(rounds)
    one = Acceptance()
    for played in (Round(4, 2, 3), Round(4, 0, 1), Round(2, 2, 2), Round(0, 0, 1)):
        one.add(played)
    assert one.by_position == [2 / 3, 1.0, 0.0, None]
    assert answers[0].acceptance.rounds == len(answers[0].rounds)


# Texts


@pytest.fixture(scope="module")
def speaking():
    """A target with a tokenizer, and its drafter."""
    target, drafters = toy_models(seed=1, vocab_size=400, gamma=GAMMA)
    target.tokenizer = train_tokenizer(400, seed=1, per_domain=40)
    return target, drafters["dspark"]


def test_a_list_of_prompts_is_answered_in_its_order_with_texts(speaking):
    target, drafter = speaking
    serving = Engine(target, drafter, slots=2, capacity=64, stop_token_ids=())
    messages = [{"role": "user", "content": "One and two?"}]
    ids = target.tokenizer("Three")["input_ids"]
    prompts = ["One", messages, ids, torch.tensor([ids]), torch.tensor(ids)]
    answers = serving.generate(prompts, 9)
    wanted = [
        generate(target, None, answer.request.input_ids, max_new_tokens=9, stop_token_ids=())
        for answer in answers
    ]
    assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in wanted]
    assert [answer.text for answer in answers] == [
        target.tokenizer.decode(answer.token_ids, skip_special_tokens=True) for answer in wanted
    ]
    chat = target.tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    read = target.tokenizer.decode(answers[1].request.input_ids[0])
    assert read == chat
    assert answers[2].token_ids == answers[3].token_ids == answers[4].token_ids
    serving.submit(Request(PROMPTS[0], 3))
    with pytest.raises(RequestError, match="under way"):
        serving.generate(["One"], 3)


@pytest.mark.parametrize("prompt", [5, None, [1.5], [{"role": "user", "content": "a" * 300}]])
def test_a_list_with_a_prompt_that_cannot_be_served_is_answered_nowhere(speaking, prompt):
    target, drafter = speaking
    serving = Engine(target, drafter, slots=2, capacity=64)
    with pytest.raises(RequestError):
        serving.generate(["One", prompt], 9)
    assert serving.idle
    with pytest.raises(RequestError, match="a list of prompts"):
        serving.generate("One", 9)
    bare = engine()
    with pytest.raises(RequestError, match="no tokenizer"):
        bare.generate(["One"], 3)


def test_several_streams_share_an_engine_and_a_closed_one_frees_its_slot(speaking):
    target, drafter = speaking
    serving = Engine(target, drafter, slots=2, capacity=64, stop_token_ids=())
    wanted = [answer.text for answer in serving.generate(["One", "Two", "Three"], 20)]

    async def text_of(prompt, stop_after=None):
        pieces, stream = [], serving.stream(prompt, 20)
        async for piece in stream:
            pieces.append(piece)
            if stop_after is not None and len(pieces) == stop_after:
                await stream.aclose()
                break
        return "".join(pieces)

    async def all_texts():
        texts = await asyncio.gather(
            text_of("One"), text_of("Two"), text_of("Three"), text_of("One", stop_after=1)
        )
        with pytest.raises(RequestError, match="positions for at most"):
            async for _ in serving.stream("One", 1000):
                pass
        return texts, await text_of("Two")

    texts, later = asyncio.run(all_texts())
    assert texts[:3] == wanted and later == wanted[1]
    assert 0 < len(texts[3]) < len(wanted[0]) and wanted[0].startswith(texts[3])
    assert serving.idle


def test_ctrl_c_leaves_no_request_of_a_list_behind(speaking, monkeypatch):
    target, drafter = speaking
    serving = Engine(target, drafter, slots=2, capacity=64)

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(serving, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        serving.generate(["One", "Two", "Three"], 9)
    monkeypatch.undo()
    assert serving.idle and len(serving.generate(["One"], 9)) == 1


def test_a_policy_that_fails_ends_every_stream_and_list(speaking):
    target, drafter = speaking
    serving = Engine(target, drafter, slots=2, capacity=64, stop_token_ids=())
    wanted = serving.generate(["One"], 9)[0].token_ids
    begun = []

    def failing(proposal):
        if not begun:  # the second stream comes while the first one's step is under way
            begun.append(
                loop.call_soon_threadsafe(lambda: second.set_result(serving.stream("Two", 9)))
            )
            time.sleep(0.2)
        raise RequestError("no lengths today")

    async def read(stream):
        with pytest.raises(RequestError, match="no lengths today"):
            async for _ in stream:
                pass

    async def both():
        nonlocal loop, second
        loop = asyncio.get_running_loop()
        second = loop.create_future()
        await asyncio.gather(read(serving.stream("One", 9)), read_late())

    async def read_late():
        await read(await second)

    loop = second = None
    serving.set_policy(failing)
    asyncio.run(asyncio.wait_for(both(), 60))
    with pytest.raises(RequestError, match="no lengths today"):
        serving.generate(["One"], 9)
    assert serving.idle
    serving.set_policy(None)
    assert serving.generate(["One"], 9)[0].token_ids == wanted


def test_pieces_of_text_add_up_and_no_character_is_broken(speaking):
    tokenizer = speaking[0].tokenizer
    text = "Größe: 5 € 🙂\nThe next line, and one more:\n\n🙂🙂 end"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    for size in (1, 2, 5):
        pieces = TextPieces(tokenizer)
        parts = [pieces.add(ids[at : at + size]) for at in range(0, len(ids), size)]
        parts.append(pieces.end())
        assert "".join(parts) == text and not any("\ufffd" in part for part in parts)
    cut = TextPieces(tokenizer)
    assert cut.add(ids[:-1]) + cut.end() == tokenizer.decode(ids[:-1])


def test_text_is_streamed_a_round_at_a_time(speaking):
    target, drafter = speaking
    pieces = list(stream_text(target, drafter, "One and two", max_new_tokens=20, stop_token_ids=()))
    ids = target.tokenizer("One and two", return_tensors="pt")["input_ids"]
    wanted = generate(target, None, ids, max_new_tokens=20, stop_token_ids=()).token_ids
    assert "".join(pieces) == target.tokenizer.decode(wanted, skip_special_tokens=True)
    assert len(pieces) > 1
