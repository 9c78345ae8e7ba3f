"""The stand-in device refuses what a GPU refuses and counts what the host reads (tests/test_stand_in_device.py)."""

import pytest
import torch
from stand_in_device import CARD, host_reads

NUMBERS = torch.arange(6.0).view(2, 3)


def test_tensors_of_both_devices_do_not_meet():
    on_card = NUMBERS.to(CARD)
    for meet in (lambda: on_card + NUMBERS, lambda: on_card @ NUMBERS.T, lambda: torch.cat([on_card, NUMBERS]),
                 lambda: on_card.index_select(0, torch.tensor([0])), lambda: on_card.add_(NUMBERS)):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            meet()
    with pytest.raises(TypeError, match="can't convert"):
        on_card.numpy()
    assert (on_card + torch.tensor(1.0)).tolist() == (NUMBERS + 1).tolist()  # a number may come along


def test_what_is_made_on_the_card_stays_there_and_holds_the_same():
    made = [torch.zeros(2, device=CARD), torch.arange(3, device=CARD), torch.rand(2, device=CARD),
            torch.tensor([1, 2], device=CARD), NUMBERS.to(CARD)[:, 1:].softmax(-1),
            torch.nn.Linear(3, 2).to(CARD).weight, torch.nn.functional.one_hot(torch.tensor([1], device=CARD), 3)]
    assert {tensor.device for tensor in made} == {torch.device(CARD, 0)}
    assert made[1].tolist() == [0, 1, 2] and made[6].tolist() == [[0, 1, 0]]
    assert made[4][:, [1, 0]].tolist() == made[4].flip(1).tolist()  # a list becomes a tensor of the card
    view = made[0][1:]
    view.fill_(5.0)
    assert made[0].tolist() == [0.0, 5.0]


@pytest.mark.parametrize(("read", "times"), [
    (lambda x: x.tolist(), 1), (lambda x: x.cpu(), 1), (lambda x: x[0, 0].item(), 1), (lambda x: bool(x.any()), 1),
    (lambda x: f"{x.sum():.1f}", 1), (lambda x: x[x > 1], 1), (lambda x: x.nonzero(), 1),
    (lambda x: torch.zeros(2, 3).copy_(x), 1), (lambda x: torch.equal(x, x), 1),
    (lambda x: x.long().flatten().bincount(), 1), (lambda x: x[torch.tensor([1], device=CARD)].to(torch.float64), 0),
    (lambda x: x.softmax(-1).argmax(-1), 0), (lambda x: x.copy_(torch.zeros(2, 3)), 0),
    (lambda x: x.index_fill_(0, torch.tensor([0], device=CARD), 1.0).shape, 0)])
def test_reads_of_the_host_are_counted(read, times):
    on_card = NUMBERS.to(CARD)
    with host_reads() as reads:
        read(on_card)
    assert len(reads) == times, reads


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_multiplies_in_16_bit_and_sums_in_32(dtype):
    weight = torch.nn.Parameter(NUMBERS.to(CARD))
    with torch.autocast(CARD, dtype):
        product = weight @ weight.mT
        chosen = product.softmax(-1)
    assert (product.dtype, chosen.dtype) == (dtype, torch.float32)
    chosen[:, 0].sum().backward()
    assert weight.grad.dtype == torch.float32 and weight.grad.device.type == CARD
    assert (weight @ weight.mT).dtype == torch.float32
