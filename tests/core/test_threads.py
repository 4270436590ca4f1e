"""Training in one thread and in several."""

import pytest
import torch

from nerve.core import tokenizers
from nerve.core import training as training_module
from nerve.core.masked_autoencoder import MaskedAutoencoder
from nerve.core.patching import Patching
from nerve.core.training import ArrayDataset, TrainingSettings, train


@pytest.fixture(autouse=True)
def threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("tokenizer", tokenizers.TOKENIZERS)
@pytest.mark.parametrize("bias", [False, True])
def test_a_step_is_the_same_in_one_thread_and_in_several(tokenizer, bias):
    patching = Patching.grid(12, 4)
    packed = torch.randn(5, patching.n_entries, generator=torch.Generator().manual_seed(0))

    def step(threads):
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        model = MaskedAutoencoder(
            patching, tokenizer, dim=8, heads=2, depth=1, decoder_dim=4, tokenizer_bias=bias
        )
        loss = model.training_loss(packed)
        loss.backward()
        with torch.no_grad():
            rebuilt = model.reconstruct(packed)
        return [loss, rebuilt, *(parameter.grad for parameter in model.parameters())]

    for one, several in zip(step(1), step(3), strict=True):
        torch.testing.assert_close(one, several)


class CountsThreads(torch.nn.Module):
    """Notes how many threads there are in each step."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.threads = set()

    def training_loss(self, batch, draws=None):
        self.threads.add(torch.get_num_threads())
        return (batch * self.weight).sum()


@pytest.mark.parametrize(("cores", "expected"), [(2, 2), (8, 3)])
def test_training_uses_no_more_threads_than_cores(monkeypatch, cores, expected):
    monkeypatch.setattr(training_module, "usable_cores", lambda: cores)
    torch.set_num_threads(3)
    module = CountsThreads()
    dataset = ArrayDataset(torch.ones(8, 2).numpy())
    train(module, dataset, TrainingSettings(epochs=1, batch_size=4, device="cpu"))
    assert module.threads == {expected}
    assert torch.get_num_threads() == 3
