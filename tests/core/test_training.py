"""The training loop: it learns, it repeats itself, it stops and goes on bit for bit, it says what went wrong."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import nerve.core.training as training_module
from nerve._utils.errors import NerveError
from nerve._utils.signals import TrainingStopped
from nerve.core.randomness import Draws
from nerve.core.training import ArrayDataset, LabelledDataset, TrainingSettings, split_rows, train
from nerve.methods.nerve import NERVE
from nerve.methods.run_folder import RunFolder, load_tensors

SETTINGS = TrainingSettings(
    epochs=6, batch_size=8, lr=1e-2, warmup_epochs=1, checkpoint_seconds=0, device="cpu"
)


class Noisy(torch.nn.Module):
    """Linear regression with dropout and per-sample noise: everything that could break a resume."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, 1)
        self.dropout = torch.nn.Dropout(0.2)
        self.norm = torch.nn.BatchNorm1d(width)
        with torch.no_grad():
            self.linear.weight.fill_(0.1)
            self.linear.bias.fill_(0.0)

    def training_loss(self, batch, draws: Draws) -> torch.Tensor:
        x, y = batch
        x = self.dropout(self.norm(x)) + 0.01 * draws.normal(x.shape[1])
        return ((self.linear(x)[:, 0] - y) ** 2).mean()


@pytest.fixture(scope="module")
def source() -> LabelledDataset:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 4))
    return LabelledDataset(ArrayDataset(x), x @ [1.0, -2.0, 0.5, 0.0])


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.slow
def test_loss_falls_and_history_has_one_row_an_epoch(source):
    result = train(Noisy(), source, replace(SETTINGS, epochs=20, lr=0.2))
    assert len(result.history) == 20
    assert result.history[-1]["validation_loss"] < 0.3 * result.history[0]["validation_loss"]


def test_same_seed_same_weights_and_global_generator_untouched(source, whole):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    module = Noisy()
    torch.manual_seed(5)
    train(module, source, SETTINGS)
    assert torch.equal(torch.rand(3), expected)
    assert same(weights(module), whole[1])


@pytest.fixture(scope="module")
def whole(source, tmp_path_factory):
    """A run that nothing stopped, and its weights."""
    module = Noisy()
    result = train(
        module, source, SETTINGS, checkpoints=RunFolder(tmp_path_factory.mktemp("runs") / "whole")
    )
    return result, weights(module)


@pytest.mark.parametrize(
    "stop_at",
    [pytest.param(1, marks=pytest.mark.slow), 7, pytest.param(29, marks=pytest.mark.slow)],
)
def test_resume_after_a_kill_is_bit_for_bit(source, whole, tmp_path, monkeypatch, stop_at):
    reference, expected = whole
    advance, calls = training_module._Trainer._advance, []

    def dies(self, rows, batch):
        calls.append(1)
        if len(calls) > stop_at:
            raise SystemExit  # as abrupt as a kill: nothing after the last checkpoint is written
        return advance(self, rows, batch)

    monkeypatch.setattr(training_module._Trainer, "_advance", dies)
    with pytest.raises(SystemExit):
        train(Noisy(), source, SETTINGS, checkpoints=RunFolder(tmp_path / "cut"))
    monkeypatch.undo()
    resumed = Noisy()
    result = train(resumed, source, SETTINGS, checkpoints=RunFolder(tmp_path / "cut"), resume=True)
    assert same(expected, weights(resumed))
    for expected_row, row in zip(reference.history, result.history, strict=True):
        for name in expected_row.keys() - {"seconds", "samples_per_second"}:
            assert row[name] == expected_row[name]


def test_sigterm_writes_a_checkpoint_and_resume_ends_alike(source, whole, tmp_path, monkeypatch):
    import os
    import signal

    settings = replace(SETTINGS, checkpoint_seconds=1e9)
    advance, calls = training_module._Trainer._advance, []

    def interrupted(self, rows, batch):
        calls.append(1)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return advance(self, rows, batch)

    monkeypatch.setattr(training_module._Trainer, "_advance", interrupted)
    with pytest.raises(TrainingStopped, match="--resume") as stopped:
        train(Noisy(), source, settings, checkpoints=RunFolder(tmp_path / "cut"))
    assert stopped.value.signal_number == signal.SIGTERM
    monkeypatch.undo()
    resumed = Noisy()
    train(resumed, source, settings, checkpoints=RunFolder(tmp_path / "cut"), resume=True)
    assert same(whole[1], weights(resumed))


def test_non_finite_loss_stops_before_it_spoils_the_checkpoint(source, tmp_path):
    class Explodes(Noisy):
        def training_loss(self, batch, draws):
            self.count = getattr(self, "count", 0) + 1
            return super().training_loss(batch, draws) * (float("nan") if self.count > 9 else 1.0)

    with pytest.raises(NerveError, match=r"step 9|step 10.*learning rate|missing values"):
        train(Explodes(), source, SETTINGS, checkpoints=RunFolder(tmp_path))
    assert all(t.isfinite().all() for t in load_tensors(tmp_path / "last.safetensors").values())


def test_a_changed_setting_is_named_when_resuming(source, tmp_path):
    train(Noisy(), source, SETTINGS, checkpoints=RunFolder(tmp_path))
    other = replace(SETTINGS, lr=0.5)
    with pytest.raises(NerveError, match=r"lr was 0\.01 and is 0\.5"):
        train(Noisy(), source, other, checkpoints=RunFolder(tmp_path), resume=True)


@pytest.mark.slow
def test_best_weights_are_those_of_least_validation_loss(source, tmp_path):
    settings = replace(SETTINGS, lr=0.9, schedule="constant", epochs=6)
    module = Noisy()
    result = train(module, source, settings, checkpoints=RunFolder(tmp_path))
    assert result.best_loss == min(row["validation_loss"] for row in result.history)
    in_memory = Noisy()
    train(in_memory, source, settings)
    assert same(weights(module), weights(in_memory))


def test_every_sample_is_used_once_an_epoch_and_none_of_validation(source):
    seen: list[np.ndarray] = []

    class Watching(LabelledDataset):
        def batch(self, rows):
            seen.append(np.array(rows))
            return super().batch(rows)

    settings = replace(SETTINGS, epochs=1, validation_fraction=0.2)
    split = split_rows(len(source), 0.2, seed=0)
    train(Noisy(), Watching(source.samples, source.targets), settings, split=split)
    steps = settings.steps_per_epoch(len(split[0]))
    assert np.array_equal(np.sort(np.concatenate(seen[:steps])), split[0])
    assert not set(split[0]) & set(split[1])


def test_each_cohort_gives_its_share_to_validation():
    groups = np.repeat(["a", "b", "c"], [100, 50, 1])
    _, validation = split_rows(151, 0.1, 0, groups)
    assert pd.Series(groups[validation]).value_counts().to_dict() == {"a": 10, "b": 5}


def test_schedule_is_linear_warmup_then_half_cosine():
    settings = TrainingSettings(epochs=4000, lr=1e-2, warmup_epochs=400)
    rates = [settings.learning_rate(step, 3) for step in range(12_000)]
    assert rates[0] == pytest.approx(1e-2 / 1200)
    assert rates[1199] == pytest.approx(1e-2)
    assert rates[1200 + 5400] == pytest.approx(5e-3)
    assert rates[-1] < 1e-8


def test_paper_preset_has_the_batches_of_the_release():
    """1,791 and 1,416 participants, a tenth of each held out: 2,886 in batches of 1,024 and a smaller last one."""
    settings = NERVE.from_preset("paper", max_steps=6, device="cpu").training_settings()
    settings = replace(settings, precision="float32")
    x = np.zeros((1791 + 1416, 4))
    seen: list[np.ndarray] = []

    class Watching(LabelledDataset):
        def batch(self, rows):
            seen.append(np.array(rows))
            return super().batch(rows)

    split = split_rows(
        len(x),
        settings.validation_fraction,
        settings.seed,
        np.repeat(["abcd", "pnc"], [1791, 1416]),
    )
    train(Noisy(), Watching(ArrayDataset(x), np.zeros(len(x))), settings, split=split)
    batches = [rows for rows in seen if not np.isin(rows, split[1]).any()]
    assert len(split[0]) == 2886
    assert [len(rows) for rows in batches] == [1024, 1024, 838, 1024, 1024, 838]
    for epoch in (batches[:3], batches[3:]):
        assert np.array_equal(np.sort(np.concatenate(epoch)), split[0])


def test_paper_preset_has_the_learning_rates_of_the_release():
    """3 steps an epoch: lr t / 1,200 in the first 400 epochs, then half a cosine to 0 at step 12,000."""
    settings = NERVE.from_preset("paper").training_settings()
    rates = {
        step: settings.learning_rate(step, 3) for step in (0, 1, 600, 1199, 1200, 6600, 11_999)
    }
    assert settings.total_steps(3) == 12_000
    assert rates[0] == 0.0
    assert rates[1] == pytest.approx(8.333333333e-6)
    assert rates[600] == pytest.approx(5e-3)
    assert rates[1199] == pytest.approx(9.991666667e-3)
    assert rates[1200] == pytest.approx(1e-2)
    assert rates[6600] == pytest.approx(5e-3)
    assert rates[11_999] == pytest.approx(2.115392e-10, rel=1e-4)


def test_other_presets_warm_up_from_the_first_step_and_have_equal_batches():
    for preset in ("default", "small"):
        settings = NERVE.from_preset(preset).training_settings()
        assert (settings.equal_batches, settings.warmup) == (True, "steps")
        assert settings.learning_rate(0, 60) == pytest.approx(3e-4 / 30)


@pytest.mark.parametrize("stop_at", [3, 7])
def test_full_batches_resume_bit_for_bit(source, tmp_path, stop_at):
    settings = replace(SETTINGS, equal_batches=False, warmup="steps_from_zero", epochs=3)
    uninterrupted = Noisy()
    train(uninterrupted, source, settings)

    class Failing(LabelledDataset):
        def batch(self, rows):
            self.reads = getattr(self, "reads", 0) + 1
            if self.reads > stop_at:
                raise OSError("the disk is gone")
            return super().batch(rows)

    with pytest.raises(OSError, match="the disk is gone"):
        train(
            Noisy(),
            Failing(source.samples, source.targets),
            settings,
            checkpoints=RunFolder(tmp_path),
        )
    resumed = Noisy()
    train(resumed, source, settings, checkpoints=RunFolder(tmp_path), resume=True)
    assert same(weights(uninterrupted), weights(resumed))


def test_adamw_agrees_with_a_literal_update(source):
    """One step of the loop equals the published AdamW update with clipping, computed by hand."""

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 0.1))

        def training_loss(self, batch, draws):
            return ((batch[0] @ self.weight - batch[1]) ** 2).mean()

    settings = TrainingSettings(
        epochs=1,
        batch_size=100,
        lr=0.1,
        weight_decay=0.01,
        validation_fraction=0,
        schedule="constant",
        device="cpu",
    )
    module = Plain()
    train(module, source, settings)
    x, y = (np.asarray(a, np.float32).astype(float) for a in (source.samples.array, source.targets))
    gradient = 2 * x.T @ (x @ np.full(4, 0.1) - y) / len(y)
    gradient *= min(1, 1.0 / np.linalg.norm(gradient))
    first, second = gradient, gradient**2  # bias-corrected moments of the first step
    expected = 0.1 * (1 - 0.1 * 0.01) - 0.1 * first / (np.sqrt(second) + 1e-6)
    np.testing.assert_allclose(module.weight.detach().numpy(), expected, rtol=1e-4)


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_optimizers_have_the_constants_of_the_settings(name):
    settings = TrainingSettings(
        optimizer=name, lr=0.1, weight_decay=0.02, betas=(0.8, 0.9), eps=1e-5, momentum=0.7
    )
    optimizer = training_module.make_optimizer(Noisy(), settings)
    constants = optimizer.param_groups[0]
    assert type(optimizer).__name__.lower() == name
    assert (constants["lr"], constants["weight_decay"]) == (0.1, 0.02)
    if name == "sgd":
        assert constants["momentum"] == 0.7
    else:
        assert (constants["betas"], constants["eps"]) == ((0.8, 0.9), 1e-5)
