"""BIDS names come apart into their parts and nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.data.readers.derivatives import by_scan, parse_name, parse_names

words = st.text("abcXYZ019", min_size=1, max_size=6)
keys = st.lists(words, min_size=0, max_size=5, unique=True).map(
    lambda ks: [k for k in ks if k != "sub"]
)


@pytest.mark.slow
@given(words, keys, st.data(), words, st.sampled_from([".tsv", ".nii.gz", ".pconn.nii", ".1D"]))
def test_a_name_built_from_parts_is_parsed_into_the_same_parts(
    subject, entity_keys, data, suffix, extension
):
    entities = {"sub": subject} | {key: data.draw(words) for key in entity_keys}
    text = "_".join(f"{key}-{value}" for key, value in entities.items()) + f"_{suffix}{extension}"
    name = parse_name(text)
    assert name is not None
    assert (name.entities, name.suffix, name.extension) == (entities, suffix, extension)


@pytest.mark.slow
@given(st.text(max_size=60).filter(lambda text: "\x00" not in text))
def test_any_text_is_a_name_or_none(text):
    name = parse_name(text)
    assert name is None or name.participant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "participants.tsv",
        "sub-01",
        "sub-01.tsv",
        "sub-01_task-rest",
        "sub-01_task-rest.tsv",
        "group_bold.nii",
    ],
)
def test_other_names_are_not_bids(text):
    assert parse_name(text) is None


def test_an_underscore_inside_an_id_is_kept():
    assert parse_name("sub-NDAR_INV9_ses-1_task-rest_bold.nii.gz").participant == "NDAR_INV9"


def test_the_scan_is_the_same_for_everything_made_of_it():
    names = parse_names(
        map(
            str,
            [
                "sub-1_task-rest_run-2_motion.tsv",
                "sub-1_task-rest_run-2_atlas-A_stat-mean_timeseries.tsv",
            ],
        )
    )
    assert names[0].scan == names[1].scan
    assert by_scan(names)[names[1].scan] is names[0]
