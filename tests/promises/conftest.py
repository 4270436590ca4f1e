"""Commands of the documentation, with their words as they stand and less work behind them."""

import pytest
import typer.testing

import nerve.simulate
from nerve.cli import app
from nerve.methods import config

NARROW = {"epochs": 1, "dim": 8, "depth": 1, "n_components": 4, "batch_size": 16, "device": "cpu"}
MOST = {"n_folds": 3, "n_inner_folds": 2, "n_bootstrap": 50, "n_permutations": 10}
N_SIMULATED = 12


@pytest.fixture
def quick(monkeypatch, undrawn):
    """Presets of one narrow epoch, few folds and resamples, a dozen simulated participants, reports without figures."""
    for name, preset in config.PRESETS.items():
        monkeypatch.setitem(config.PRESETS, name, preset | NARROW)
    for command in typer.testing._get_command(app).commands.values():
        for parameter in getattr(command, "params", ()):
            if most := MOST.get(parameter.name):
                monkeypatch.setattr(parameter, "callback", lambda context, one, value, most=most: min(value, most))
    simulate = nerve.simulate.simulate_to
    few = lambda out, n, *rest, **more: simulate(out, min(n, N_SIMULATED), *rest, **more)  # noqa: E731
    monkeypatch.setattr(nerve.simulate, "simulate_to", few)
