"""Identifiers are taken out, other words are left alone."""

import pytest

from nerve.report.privacy import Scrubber


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sub-01 moved", "[participant] moved"),
        ("file sub-01_fc.tsv", "file [participant]_fc.tsv"),
        ("1234 resamples of 12345", "[participant] resamples of 12345"),
        ("12 people and/or families", "12 people and/or families"),
        ("/home/ada/study/fc.npy: empty", "[…]/fc.npy: empty"),
        ("p < 0.05", "p < 0.05"),
        ("sub-unknown7_task-rest.tsv", "[participant]_task-rest.tsv"),
    ],
)
def test_clean(text, expected):
    assert Scrubber(["sub-01", "1234", "12", "5"]).clean(text) == expected
