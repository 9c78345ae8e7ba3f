"""Drafted trees: a branch sees itself alone, the output is the target's, and a tree of one chain is that chain."""

import copy

import pytest
import torch

from dspark_lite.common.errors import RequestError
from dspark_lite.course.extensions.trees import (
    Tree,
    follow,
    generate_with_tree,
    grow,
    keep_path,
    verify_tree,
)
from dspark_lite.decoding import generate
from dspark_lite.decoding.sampling import probabilities
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.enumeration import outcomes, summed
from dspark_lite.losslessness.toys import toy_models

TARGET, DRAFTERS = toy_models(seed=1, vocab_size=11, gamma=4)
PROMPTS = [
    torch.randint(11, (1, 2 + n), generator=torch.Generator().manual_seed(n)) for n in range(4)
]
BLOCK_DRAFTERS = ["dspark", "dspark_gated", "dspark_rnn", "dflash"]
BRANCHED = Tree(torch.tensor([3, 5, 3, 7, 2]), [0, 0, 1, 2, 3])


def test_a_node_sees_the_way_to_it_and_nothing_else():
    seen, depth = BRANCHED.lines()
    assert [torch.nonzero(row).flatten().tolist() for row in seen] == [
        [0],
        [0, 1],
        [0, 2],
        [0, 1, 3],
        [0, 2, 4],
        [0, 1, 3, 5],
    ]
    assert depth.tolist() == [0, 1, 1, 2, 2, 3]


def begun(name="dspark", prompt=PROMPTS[1]):
    """The target's cache, a drafter's state and the anchor after a prompt."""
    output, cache = TARGET.prefill(prompt, DRAFTERS[name].taps)
    return cache, DRAFTERS[name].begin(prompt, output.features), output.logits[0, -1:].argmax(-1)


@torch.inference_mode()
def test_one_pass_over_a_tree_is_a_pass_over_each_of_its_branches():
    cache, _, anchor = begun()
    entering = torch.cat([anchor, BRANCHED.tokens])[None]
    together = verify_tree(TARGET, cache, entering, BRANCHED, (0, 1))
    seen, _ = BRANCHED.lines()
    for node in range(6):
        way = torch.nonzero(seen[node]).flatten()
        cache_alone, *_ = begun()
        alone = TARGET.verify(entering[:, way], cache_alone, (0, 1))
        torch.testing.assert_close(together.logits[0, way], alone.logits[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(
            together.features[0, way], alone.features[0], atol=1e-4, rtol=1e-4
        )


@torch.inference_mode()
def test_what_is_kept_of_a_tree_is_what_its_branch_alone_would_have_left():
    cache, _, anchor = begun()
    entering, path = torch.cat([anchor, BRANCHED.tokens])[None], [0, 2, 4]
    verify_tree(TARGET, cache, entering, BRANCHED)
    keep_path(TARGET, cache, path, 5)
    other, *_ = begun()
    TARGET.verify(entering[:, path], other)
    following = torch.tensor([[1, 4]])
    torch.testing.assert_close(
        TARGET.verify(following, cache).logits,
        TARGET.verify(following, other).logits,
        atol=1e-4,
        rtol=1e-4,
    )


def test_the_draws_are_followed_as_long_as_the_tree_has_them():
    probs = torch.nn.functional.one_hot(torch.tensor([5, 0, 7, 0, 9, 0]), 11).float()
    assert follow(probs, BRANCHED, None)[0] == [0, 2, 4]
    assert follow(probs, BRANCHED, torch.Generator())[1].tolist() == [9]


@torch.inference_mode()
@pytest.mark.parametrize("name", BLOCK_DRAFTERS)
def test_a_tree_is_best_first_by_the_drafters_own_chances(name):
    """The nodes are the most probable continuations of all that a block can have."""
    target, drafters = toy_models(seed=1, vocab_size=4, gamma=3)
    drafter, prompt = drafters[name], torch.tensor([[1, 2, 0]])
    output, _ = target.prefill(prompt, drafter.taps)
    state, anchor = drafter.begin(prompt, output.features), torch.tensor([1])
    tree = grow(drafter, state, anchor, 9)
    hidden = drafter.block_hidden(state, anchor)
    chances = {}

    def visit(way, previous, depth, chance, memory):
        if depth == 3:
            return
        bias, memory = (
            drafter.markov_head.step(previous, hidden[:, depth], memory)
            if drafter.markov_head
            else (0.0, None)
        )
        probs = probabilities((drafter.lm_head(hidden)[:, depth] + bias)[0], 1.0)
        for token in range(4):
            chances[(*way, token)] = chance * probs[token].item()
            visit((*way, token), torch.tensor([token]), depth + 1, chances[(*way, token)], memory)

    visit((), anchor, 0, 1.0, drafter.markov_head.begin(hidden) if drafter.markov_head else None)
    seen, depth = tree.lines()
    ways = [
        tuple(
            tree.tokens[[place - 1 for place in torch.nonzero(row).flatten().tolist()[1:]]].tolist()
        )
        for row in seen[1:]
    ]
    assert depth.max() <= 3 and [chances[way] for way in ways] == pytest.approx(
        sorted(chances.values(), reverse=True)[:9], rel=1e-3
    )


@pytest.mark.parametrize("name", BLOCK_DRAFTERS)
@pytest.mark.parametrize("nodes", [1, 6, 20])
def test_greedy_answers_are_plain_decodings(name, nodes):
    for prompt in PROMPTS:
        plain = generate(TARGET, None, prompt, max_new_tokens=14, stop_token_ids=(4,)).token_ids
        found = generate_with_tree(
            TARGET, DRAFTERS[name], prompt, nodes=nodes, max_new_tokens=14, stop_token_ids=(4,)
        )
        assert (
            found.token_ids == plain
            and sum(played.committed for played in found.rounds) == len(plain) - 1
        )


@pytest.mark.parametrize("name", BLOCK_DRAFTERS)
def test_a_trees_output_is_exactly_the_targets(name):
    target, drafters = toy_models(seed=3, vocab_size=2, gamma=2)
    asked = dict(nodes=3, max_new_tokens=4, temperature=1.0, stop_token_ids=())
    found = summed(
        outcomes(
            lambda path: tuple(
                generate_with_tree(
                    target, drafters[name], torch.tensor([[0]]), generator=path, **asked
                ).token_ids
            )
        )
    )
    assert total_variation(found, output_distribution(target, None, None, 4)) < 1e-6


def test_a_larger_tree_is_followed_at_least_as_far():
    """Greedily the draws are the same, and the nodes of a smaller tree are among those of a larger one."""
    prompt = PROMPTS[2]
    lengths = [
        generate_with_tree(
            TARGET, DRAFTERS["dspark"], prompt, nodes=nodes, max_new_tokens=30, stop_token_ids=()
        )
        .rounds[0]
        .accepted
        for nodes in (1, 4, 16, 40)
    ]
    assert lengths == sorted(lengths)


def test_a_target_whose_layers_see_different_texts_is_refused():
    windowed = copy.copy(TARGET)
    windowed.has_windows = True
    for target, drafter, nodes in (
        (windowed, DRAFTERS["dspark"], 3),
        (TARGET, TARGET, 3),
        (TARGET, None, 3),
        (TARGET, DRAFTERS["dspark"], 0),
    ):
        with pytest.raises(
            RequestError, match="sliding window|the drafter is a Target|a tree needs"
        ):
            generate_with_tree(target, drafter, PROMPTS[0], nodes=nodes, max_new_tokens=4)


def test_a_drafter_without_blocks_is_refused():
    with pytest.raises(RequestError, match="drafts no block whose positions could branch"):
        generate_with_tree(TARGET, DRAFTERS["eagle3"], PROMPTS[0], nodes=3, max_new_tokens=4)
