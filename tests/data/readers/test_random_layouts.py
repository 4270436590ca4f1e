"""Random layouts of a cohort are read right or refused with a `NerveError`, never anything else."""

import re
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.data.readers.random_layouts import (
    ONE_FILE,
    ONE_FILE_EACH,
    TEXT,
    difference,
    follow_remedy,
    layouts,
    write_layout,
)

from nerve._utils.errors import NerveError
from nerve.data.quality.codes import suspicious_codes
from nerve.data.readers import read_cohort

pytestmark = pytest.mark.slow
pytest.importorskip("pyreadstat")
pytest.importorskip("pyarrow")
pytest.importorskip("openpyxl")

IN_TORTURE = settings.get_current_profile_name() == "torture"
FEWEST_RIGHT = 0.35  # share of the layouts: a reader that refuses everything is of no use
ARRAYS = tuple(storage for storage in ONE_FILE_EACH if storage not in TEXT)
FAMILIES = {
    "text": layouts(tuple(TEXT)),
    "text with numbers as labels": layouts(tuple(TEXT), number_labels=True),
    "arrays": layouts(ARRAYS),
    "one file of all": layouts(ONE_FILE),
}


def tried(few, many):
    """So many examples in `make test` and in `make torture`; only the latter differ from run to run."""
    if IN_TORTURE:
        return settings(max_examples=many, phases=(Phase.explicit, Phase.generate), database=None)
    return settings(
        max_examples=few, derandomize=True, suppress_health_check=list(HealthCheck), database=None
    )


def outcome_of(layout):
    """`right`, `right once the advice is typed`, or why it is refused; fails where it was read wrong."""
    with tempfile.TemporaryDirectory() as folder:
        source, options, truth = write_layout(layout, Path(folder))
        outcome = "right"
        while True:
            try:
                cohort = read_cohort(source, jobs=1, **options)
            except NerveError as error:
                sentence = str(error)
                if follow_remedy(sentence, layout, source, options, truth):
                    outcome = "right once the advice is typed"
                    continue
                return f"refused: {reason_of(sentence)}"
            break
        problem = difference(cohort, truth)
        plan = "\n".join(str(line) for line in cohort.notes["plan"])
        assert not problem, f"{problem}\n{options}\n{plan}"
        if truth.has_undeclared_codes:
            codes = suspicious_codes(cohort.participants["age"])
            n_codes = (cohort.participants["age"] == 999).sum()
            assert n_codes < 2 or [code.value for code in codes] == [999.0]
    return outcome


def reason_of(sentence):
    """A refusal without names, numbers and remedy, so that reasons can be counted."""
    words = re.sub(r"/\S*: ", "", sentence)
    words = re.sub(r"\(.*?\)|'.*?'", "", words)
    words = re.split(r"(?<=[a-z])\. |; |, expected", words)[0]
    return re.sub(r"\S*\d\S*", "N", words)[:90]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_random_layout_is_read_right_or_refused(family, record_property):
    if family == "text with numbers as labels":
        # what tells headers and indices of numbers from data
        pytest.importorskip("nerve.data.readers.frames")
    outcomes = Counter()

    @tried(few=20, many=700)
    @given(layout=FAMILIES[family])
    def try_layout(layout):
        outcomes[outcome_of(layout)] += 1

    try_layout()
    for outcome, count in outcomes.items():
        record_property(outcome, count)  # `torture.random_layouts` adds them up
    n_right = outcomes["right"] + outcomes["right once the advice is typed"]
    assert outcomes["right"] > 0
    assert outcomes["right once the advice is typed"] > 0
    assert n_right >= FEWEST_RIGHT * outcomes.total(), outcomes.most_common()
