"""The numerical torture notices faults, and the promises of its short form are kept."""

import warnings

import numpy as np
import pytest
from torture.numerical import Case, judge

from nerve._utils.errors import NerveError, NerveWarning
from torture import numerical


def refuses(folder):
    raise NerveError("target 'y' is of no use")


def warns_of_r2(folder):
    warnings.warn("r2 of y could not be computed", NerveWarning, stacklevel=1)
    return "r2"


def overflows(folder):
    np.float64(1e300) * np.array([1e300])


@pytest.mark.parametrize(
    ("compute", "message", "verdict"),
    [
        (lambda folder: None, "", "numbers"),
        (refuses, "target 'y'", "refused"),
        (refuses, "target 'z'", "wrong"),
        (refuses, "", "wrong"),
        (lambda folder: "r2", "", "wrong"),
        (warns_of_r2, "of y", "warned"),
        (warns_of_r2, "sub-007", "wrong"),
        (overflows, "", "wrong"),
        (lambda folder: 1 / 0, "", "wrong"),
    ],
)
def test_the_verdict_on_a_case(compute, message, verdict, tmp_path):
    assert judge(Case("a case", compute, message), tmp_path)[0] == verdict


@pytest.mark.slow
def test_short_form(tmp_path):
    promises = numerical.run(tmp_path, short=True, seed=0)
    assert [promise for promise in promises if not promise.kept] == []
