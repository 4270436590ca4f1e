"""Small operations run in one thread, forwards and backwards, and give what they give in several."""

import pytest
import torch

from nerve._utils.threads import in_one_thread
from nerve.core import tokenizers
from nerve.core.masked_autoencoder import MaskedAutoencoder
from nerve.core.patching import Patching


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Watched(torch.autograd.Function):
    """Twice the number; notes how many threads there are on the way there and on the way back."""

    threads: list[int] = []

    @staticmethod
    def forward(ctx, x):
        Watched.threads.append(torch.get_num_threads())
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        Watched.threads.append(torch.get_num_threads())
        return 2 * gradient


def test_both_ways_are_in_one_thread_and_the_others_come_back():
    Watched.threads.clear()
    x, weight = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor(3.0, requires_grad=True)
    unused = torch.tensor(1.0, requires_grad=True)
    y = in_one_thread(lambda x: Watched.apply(x) * weight, x, [weight, unused])
    assert torch.get_num_threads() == 2
    y.sum().backward()
    assert Watched.threads == [1, 1]
    assert torch.get_num_threads() == 2
    assert (x.grad.tolist(), float(weight.grad), unused.grad) == ([6.0, 6.0], 6.0, None)


def test_an_error_gives_the_threads_back():
    with pytest.raises(ZeroDivisionError):
        in_one_thread(lambda x: x / (1 // 0), torch.ones(1), [])
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("tokenizer", tokenizers.TOKENIZERS)
@pytest.mark.parametrize("bias", [False, True])
def test_a_step_is_the_same_in_one_thread_and_in_several(tokenizer, bias, monkeypatch):
    patching = Patching.grid(12, 4)
    packed = torch.randn(5, patching.n_entries, generator=torch.Generator().manual_seed(0))

    def step(worth_threads):
        monkeypatch.setattr(tokenizers, "WORTH_THREADS", worth_threads)
        torch.manual_seed(1)
        model = MaskedAutoencoder(
            patching, tokenizer, dim=8, heads=2, depth=1, decoder_dim=4, tokenizer_bias=bias
        )
        loss = model.training_loss(packed)
        loss.backward()
        with torch.no_grad():
            rebuilt = model.reconstruct(packed)
        return [loss, rebuilt, *(parameter.grad for parameter in model.parameters())]

    for one, several in zip(step(float("inf")), step(0), strict=True):
        torch.testing.assert_close(one, several)
