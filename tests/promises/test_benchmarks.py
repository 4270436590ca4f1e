"""`make bench` knows every method that is trained."""

import pytest
from benchmarks.methods import NOT_TRAINED, measure

from nerve.methods import METHODS


def test_methods_that_are_not_measured_are_references():
    for name in NOT_TRAINED:
        assert not hasattr(METHODS[name], "begin_training")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nerve", "finetune", "gate"])
def test_a_step_of_each_role_is_measured(name):
    costs = measure(name)
    assert costs.seconds > 0
    assert costs.n_parameters > 1000
