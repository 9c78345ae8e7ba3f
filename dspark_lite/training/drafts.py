"""Trains a block drafter (DSpark, DFlash) on the target's own answers (paper, section 3.4)."""

from pathlib import Path

import torch

from ..checkpoints import parse_draft_config
from ..drafters import DSpark
from .anchors import block_mask, draw_anchors
from .cache import TargetCache
from .language_model import autocast, by_length
from .loop import Plan, optimise
from .losses import block_losses, training_forward


def new_draft(recipe: dict, target) -> DSpark:
    """A freshly initialised drafter whose embedding and LM head are the target's, frozen."""
    torch.manual_seed(recipe["seed"])
    source = target.config
    inherited = {name: getattr(source, name) for name in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads",
                                                          "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_parameters")}
    drafter = DSpark(parse_draft_config({**inherited, "num_target_layers": target.num_layers, **recipe["config"]}))
    for module in drafter.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            torch.nn.init.normal_(module.weight, std=source.initializer_range)
    if drafter.markov_head is not None:
        torch.nn.init.zeros_(drafter.markov_head.markov_w2.weight)  # begins as DFlash, learns the transitions
    for ours, theirs in ((drafter.embed_tokens, target.model.get_input_embeddings()), (drafter.lm_head, target.model.get_output_embeddings())):
        ours.weight.data.copy_(theirs.weight)
        ours.weight.requires_grad_(False)
    return drafter.to(target.device)


def train_draft(recipe: dict, target, cache: TargetCache, folder: Path) -> DSpark:
    """Trains the drafter that `recipe` describes over the cached rows; resumes from `folder`."""
    drafter, device = new_draft(recipe, target), target.device
    lm_head = target.model.get_output_embeddings()
    batches = [batch for epoch in range(recipe["epochs"])
               for batch in by_length(list(range(len(cache.rows))), recipe["batch"], recipe["seed"] + epoch, lambda index: len(cache.rows[index][0]))]

    def batch_at(step: int):
        generator = torch.Generator().manual_seed(recipe["seed"] * 1_000_003 + step)
        ids, supervised, features, last_hidden = cache.batch(batches[step], "cpu")
        anchors, valid = draw_anchors(supervised, recipe["config"]["num_anchors"], generator)
        return tuple(tensor.to(device) for tensor in (ids, supervised, features, last_hidden, anchors, valid))

    def loss_of(batch):
        ids, supervised, features, last_hidden, anchors, valid = batch
        mask = block_mask(anchors, ids.shape[1], drafter.gamma)
        with autocast(device, recipe["precision"]):
            logits, confidence, tokens, counted, before = training_forward(drafter, features, ids, supervised, anchors, valid, mask)
            with torch.no_grad():
                # The LM head is applied at the sampled positions only: logits are never stored.
                target_logits = lm_head(last_hidden[torch.arange(len(ids), device=device)[:, None, None], before])
        losses = block_losses(logits, target_logits, tokens, counted, confidence)
        terms = {name: getattr(losses, name) for name in ("cross_entropy", "l1", "confidence")}
        return sum(recipe["loss"][name] * term for name, term in terms.items()), losses.weight, terms

    plan = Plan(steps=len(batches), learning_rate=recipe["learning_rate"])
    optimise(drafter, batch_at, loss_of, plan, folder, title=recipe["name"])
    return drafter.eval()
