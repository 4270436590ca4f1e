"""Commands of the documentation, with their words as they stand and less work behind them."""

import pytest

import nerve.data.simulate
from nerve.methods.nerve import PRESETS

NARROW = {"epochs": 1, "dim": 8, "depth": 1, "n_components": 4, "batch_size": 16, "device": "cpu"}
N_SIMULATED = 60  # as many as ten folds need for a score


@pytest.fixture
def quick(monkeypatch, undrawn):
    """Presets of one narrow epoch, few simulated participants, reports without figures."""
    for name, preset in PRESETS.items():
        monkeypatch.setitem(PRESETS, name, preset | NARROW)
    simulate = nerve.data.simulate.simulate_to
    few = lambda out, n, *rest, **more: simulate(out, min(n, N_SIMULATED), *rest, **more)  # noqa: E731
    monkeypatch.setattr(nerve.data.simulate, "simulate_to", few)
