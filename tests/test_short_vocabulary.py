"""A draft that chooses among some of its target's ids: the ids, the text, the training."""

from collections import Counter
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from dspark_lite import CustomGenerate, fast_path, generate, load_drafter
from dspark_lite.common.errors import RequestError
from dspark_lite.decoding.lockstep import generate_together
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import save_draft
from dspark_lite.models.short_vocabulary import frequent_ids
from dspark_lite.training.blocks import block_loss, block_targets
from dspark_lite.training.cache import OnlineFeatures
from dspark_lite.training.chains import eagle3_loss, mtp_loss, unrolled_hidden
from dspark_lite.training.drafts import new_draft
from dspark_lite.training.recipe import LossWeights
from dspark_lite.training.train import TrainingRows, train_draft
from helpers import assert_refused, greedy, recipe_of
from test_recipe_fields import FIELDS, TARGET, VOCAB, features

CHAINS = {"drafter": "eagle3", "ttt_length": 3}, {"drafter": "mtp", "target_layer_ids": [2]}

# The ids -------------------------------------------------------------------------------------------------------------


def target_of(size: int, *stops: int):
    return SimpleNamespace(vocab_size=size, stop_token_ids=stops, tokenizer=None)


def test_the_ids_are_the_most_frequent_with_the_stop_tokens_and_the_first_of_equals():
    text = [5, 5, 5, 2, 2, 7, 1]
    assert frequent_ids(text, 2, target_of(9)).tolist() == [2, 5]
    assert frequent_ids(text, 3, target_of(9)).tolist() == [1, 2, 5]
    assert frequent_ids(text, 3, target_of(9, 8)).tolist() == [2, 5, 8]
    assert frequent_ids([], 3, target_of(9, 8)).tolist() == [0, 1, 8]


def test_a_text_is_counted_in_the_targets_tokens(tiny_lab):
    text = "the answer is the answer"
    (token, _), *_ = Counter(tiny_lab.target.tokenizer(text)["input_ids"]).most_common()
    stops = len(tiny_lab.target.stop_token_ids)
    drafter = load_drafter("tiny-dspark", tiny_lab.target, vocabulary=stops + 1, text=text)
    assert sorted(drafter.output_ids.tolist()) == sorted([token, *tiny_lab.target.stop_token_ids])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"vocabulary": 0}, "has 0 ids; a short one has between 1 and 10"),
        ({"vocabulary": 11}, "has 11 ids"),
        ({"vocabulary": [11]}, "whole numbers from 0 to 10"),
        ({"vocabulary": [-1, 2]}, "whole numbers from 0 to 10"),
        ({"vocabulary": []}, "no list of them"),
        ({"vocabulary": [1.5]}, "no list of them"),
        ({"vocabulary": "many"}, "no list of them"),
        ({"vocabulary": 2.5}, "no list of them"),
        ({"vocabulary": 3, "text": "a text"}, "this target has no tokenizer"),
        ({"vocabulary": [1, 2], "text": "a text"}, "leave one of them out"),
        ({"text": "a text"}, "give its size"),
    ],
)
def test_a_vocabulary_that_is_none_is_refused(pair, target, options, sentence):
    with pytest.raises(RequestError, match=sentence) as caught:
        load_drafter(str(pair / "draft"), target, **options)
    assert "\n" not in str(caught.value)


def test_drafters_without_an_lm_head_of_their_own_are_refused(pair, target):
    for name in ("prompt_lookup", str(pair / "small")):
        assert_refused("from its whole vocabulary", load_drafter, name, target, vocabulary=3)


# The text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dspark", "eagle3", "mtp"])
def test_the_text_is_the_targets_by_enumeration(tmp_path, kind):
    toy, drafters = toy_models(vocab_size=3, gamma=2)
    save_draft(tmp_path, drafters[kind], toy)
    short = load_drafter(str(tmp_path), toy, vocabulary=[2, 0])
    assert short.output_ids.tolist() == [0, 2] and short.lm_head.weight.shape[0] == 2
    plain, drafted = (output_distribution(toy, one, None, 3) for one in (None, short))
    assert total_variation(plain, drafted) < 1e-5


def test_the_draft_is_the_whole_one_among_its_ids_and_is_saved_and_read_as_such(
    pair,
    target,
    tmp_path,
):
    whole = load_drafter(str(pair / "draft"), target)
    ids = torch.tensor([1, 4, 7, 8])
    short = load_drafter(str(pair / "draft"), target, vocabulary=ids.flip(0))
    save_draft(tmp_path / "short", short, target)
    prompt = torch.tensor([[1, 2, 3]])
    read, _ = target.prefill(prompt, whole.taps)
    p, q, again = (
        drafter.propose(
            drafter.begin(prompt, read.features),
            torch.tensor([3]),
            gamma=1,
            temperature=0.7,
            generator=None,
        ).probs[0, 0]
        for drafter in (whole, short, load_drafter(str(tmp_path / "short"), target))
    )
    wanted = torch.zeros(11).index_copy(0, ids, p[ids])
    torch.testing.assert_close(q, wanted / wanted.sum())
    torch.testing.assert_close(again, q, atol=1e-2, rtol=0)  # saved in 16 bits
    # A vocabulary of a vocabulary: what both have.
    shorter = load_drafter(str(tmp_path / "short"), target, vocabulary=[0, 4, 8, 9])
    assert shorter.output_ids.tolist() == [4, 8]
    assert_refused(
        "has none of them", load_drafter, str(tmp_path / "short"), target, vocabulary=[0]
    )


@pytest.mark.parametrize("name", ["tiny-dspark", "tiny-dflash", "tiny-eagle3", "tiny-mtp"])
def test_greedy_text_is_plain_decodings_on_every_path(tiny_lab, name):
    """With 300 of 3,584 ids, of which most texts have others too."""
    drafter = load_drafter(name, tiny_lab.target, vocabulary=300)
    prompts = [tiny_lab.encode(texts[0]) for texts in tiny_lab.prompts.values()]
    options = {"max_new_tokens": 24}
    plain = [generate(tiny_lab.target, None, prompt, **options).token_ids for prompt in prompts]
    own = set(drafter.output_ids.tolist())
    assert any(token not in own for tokens in plain for token in tokens)
    for prepare in (None, partial(fast_path, backend="eager")):
        found = [
            generate(tiny_lab.target, drafter, prompt, prepare=prepare, **options)
            for prompt in prompts
        ]
        assert [answer.token_ids for answer in found] == plain
        assert own.issuperset(
            x for answer in found for each in answer.rounds for x in each.draft_tokens
        )
    together = generate_together(tiny_lab.target, drafter, prompts, **options)
    assert [answer.token_ids for answer in together] == plain
    written = tiny_lab.target.model.generate(
        prompts[0],
        attention_mask=torch.ones_like(prompts[0]),
        do_sample=False,
        custom_generate=CustomGenerate(drafter, tiny_lab.target.model),
        **options,
    )
    assert written[0, prompts[0].shape[1] :].tolist() == plain[0]


def test_a_vocabulary_that_covers_the_drafts_costs_no_accepted_token(tiny_lab):
    """The largest logit stays the largest where it stays: every greedy round is the same."""
    prompt = tiny_lab.encode(tiny_lab.prompts["code"][0])
    whole = generate(tiny_lab.target, tiny_lab.drafter("dspark"), prompt, max_new_tokens=64)
    drafts = {token for each in whole.rounds for token in each.draft_tokens}
    drafter = load_drafter("tiny-dspark", tiny_lab.target, vocabulary=drafts)
    short = generate(tiny_lab.target, drafter, prompt, max_new_tokens=64)
    assert short.token_ids == whole.token_ids
    assert [(each.draft_tokens, each.accepted) for each in short.rounds] == [
        (each.draft_tokens, each.accepted) for each in whole.rounds
    ]


# The training --------------------------------------------------------------------------------------------------------

SIZE = 5
recipe = partial(recipe_of, FIELDS)


@pytest.mark.parametrize("shape", [{}, *CHAINS], ids=["block", "eagle3", "mtp"])
def test_a_draft_is_trained_on_the_most_frequent_ids_of_the_answers_that_it_learns(tmp_path, shape):
    made = recipe(config={"draft_vocab_size": SIZE, **shape})
    cache = features(TARGET, made.config.target_layer_ids)
    learned = [token for ids, prompt in cache.rows[:-3] for token in ids[prompt:]]
    drafter = train_draft(made, TARGET, cache, tmp_path / "run")
    ids = frequent_ids(learned, SIZE, TARGET)
    assert drafter.output_ids.equal(ids)
    assert drafter.lm_head.weight.equal(TARGET.model.get_output_embeddings().weight[ids])
    save_draft(tmp_path / "draft", drafter, TARGET)
    loaded = load_drafter(str(tmp_path / "draft"), TARGET)
    assert loaded.output_ids.equal(ids) and greedy(TARGET, loaded) == greedy(TARGET)
    # Resumed with other answers, it keeps its ids.
    more = OnlineFeatures(TARGET, [([0] * 10, 2), *cache.rows], cache.taps)
    assert TrainingRows(made, more).vocabulary(TARGET, tmp_path / "run").equal(ids)


def short_and_batch(shape: dict):
    """A draft of five ids, and the first batch of its training."""
    made = recipe(config={"draft_vocab_size": SIZE, **shape})
    drafter = new_draft(made, TARGET, vocabulary=torch.tensor([0, 3, 4, 8, 9]))
    cache = features(TARGET, made.config.target_layer_ids)
    return drafter, TrainingRows(made, cache).at(0)


def assert_learns(drafter, numerator):
    """Every gradient is a number."""
    numerator.backward()
    for name, parameter in drafter.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


class Shut(torch.nn.Module):
    """An LM head whose logits are -inf at all but some ids."""

    def __init__(self, weight, ids):
        super().__init__()
        self.weight, self.shut = weight, torch.full((len(weight),), -torch.inf)
        self.shut[ids] = 0.0

    def forward(self, hidden):
        return F.linear(hidden, self.weight) + self.shut


def test_a_blocks_losses_are_those_of_a_whole_draft_that_never_writes_the_other_ids():
    """Against the target's whole distribution: the confidence learns what acceptance there is."""
    short, batch = short_and_batch({})
    whole, ids = new_draft(recipe(), TARGET), short.output_ids
    other = {"d2t", "lm_head.weight", "markov_head.markov_w2.weight"}
    shared = {name: value for name, value in short.state_dict().items() if name not in other}
    whole.load_state_dict(shared, strict=False)
    torch.nn.init.normal_(short.markov_head.markov_w2.weight)
    with torch.no_grad():
        whole.markov_head.markov_w2.weight[ids] = short.markov_head.markov_w2.weight
    whole.target_head = whole.lm_head.weight
    whole.lm_head = Shut(whole.target_head, ids)
    numerator, weight, terms = block_loss(short, batch, LossWeights(), 1.0)
    wanted, total, named = block_loss(whole, batch, LossWeights(), 1.0)
    torch.testing.assert_close((numerator, weight, terms), (wanted, total, named))
    assert_learns(short, numerator)


def test_a_chains_losses_are_cross_entropy_over_its_ids():
    for shape, loss, decay in zip(CHAINS, (eagle3_loss, mtp_loss), (0.8, 1.0)):
        drafter, batch = short_and_batch(shape)
        made, _, terms = loss(drafter, batch, LossWeights(), 1.0)
        ids, supervised, read, last_hidden, anchors, valid = batch
        tokens, mask, position = block_targets(ids, supervised, anchors, valid, drafter.gamma)
        read = last_hidden if loss is mtp_loss else read
        wanted, rows = 0.0, torch.arange(len(ids))[:, None]
        for k, hidden in enumerate(
            unrolled_hidden(drafter, read, ids, tokens[..., :-1], anchors.clamp(min=1))
        ):
            log_q = drafter.over_target(drafter.lm_head(hidden)).log_softmax(-1)
            log_q = log_q.masked_fill(log_q.isinf(), 0.0)  # an id that it has not teaches nothing
            p = F.one_hot(tokens[..., k + 1], VOCAB).float()
            if loss is eagle3_loss:
                head = TARGET.model.get_output_embeddings()
                p = head(last_hidden[rows, position[..., k]]).softmax(-1)
            wanted = wanted - decay**k * ((p * log_q).sum(-1) * mask[..., k]).sum()
        torch.testing.assert_close(made, wanted)
        assert_learns(drafter, made)


def test_a_short_draft_begins_with_the_rows_of_a_whole_one(tmp_path):
    whole = new_draft(recipe(seed=5), TARGET)
    torch.nn.init.normal_(whole.markov_head.markov_w2.weight)
    save_draft(tmp_path, whole, TARGET)
    made = recipe(initial=str(tmp_path), config={"draft_vocab_size": SIZE})
    ids = torch.tensor([0, 3, 4, 8, 9])
    begun = new_draft(made, TARGET, vocabulary=ids)
    rows = load_drafter(str(tmp_path), TARGET).markov_head.markov_w2.weight[ids]
    assert begun.output_ids.equal(ids) and begun.markov_head.markov_w2.weight.equal(rows)
