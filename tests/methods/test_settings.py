"""Every setting of every method is checked before anything runs: a mistake is a sentence, never a traceback."""

import inspect
import re

import numpy as np
import pytest

from nerve._utils.errors import NerveError
from nerve.methods import METHODS, make_method, method_class

ODD = [
    "abc",
    "",
    None,
    -1,
    0,
    1.5,
    1e400,
    float("nan"),
    True,
    [],
    {},
    "3",
    [1],
    10**30,
    np.float32(-1),
]


def settings_of(name: str) -> list[str]:
    return list(inspect.signature(method_class(name)).parameters)


def refusal(name: str, settings: dict) -> str:
    """The sentence, or nothing where the method can be made; any other error is passed on."""
    try:
        make_method(name, "small", settings)
    except NerveError as error:
        return str(error)
    return ""


# Which odd values make sense, by what a setting means; everything else must be refused.
NAMES = {"patching", "recentre", "parcellation"}  # of a table of groups, of a column, of an atlas
MAY_BE_NONE = {"parcellation", "recentre", "n_components", "clip", "max_steps", "pretrained"}
MAY_BE_LISTS = {"columns", "phenotypes", "hidden", "other_windows"}
MAY_BE_PARTS = {"warmup_epochs"}  # of whole numbers
MAY_BE_NEGATIVE = {"threshold"}  # of correlations
MAY_BE_ZERO = re.compile(
    r"seed|(\w+_)?(depth|epochs|dropout|drop|fraction|momentum|seconds|volumes|shrinkage|slope|threshold|noise)"
    r"|decorrelation|layers|min_lr|weight_\w+|\w+_weight"
)


def makes_sense(setting: str, value: object, default: object) -> bool:
    """Whether a value of `ODD` is one that a setting may have."""
    if isinstance(value, bool):
        return isinstance(default, bool)
    if isinstance(value, str):
        return setting in NAMES
    if value is None:
        return setting in MAY_BE_NONE
    if isinstance(value, list):
        return setting in MAY_BE_LISTS
    if value == 0:
        return MAY_BE_ZERO.fullmatch(setting) is not None
    if value == -1:
        return setting in MAY_BE_NEGATIVE
    return value == 1.5 and (
        default is None or isinstance(default, float) or setting in MAY_BE_PARTS
    )


@pytest.mark.parametrize("name", METHODS)
def test_odd_values_are_refused_with_a_sentence_unless_they_make_sense(name):
    defaults = make_method(name, "small").get_params()
    for setting in settings_of(name):
        for value in ODD:
            sentence = refusal(name, {setting: value})
            if sentence:
                assert setting in sentence, (setting, value, sentence)
                assert "validation error" not in sentence
            else:
                assert makes_sense(setting, value, defaults.get(setting)), (setting, value)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("setting", "value"),
    [("seed", -1), ("seed", 1.5), ("seed", "one"), ("device", "gpu"), ("device", 3)],
)
def test_seed_and_device_are_checked_where_there_are_any(name, setting, value):
    if setting not in inspect.signature(method_class(name)).parameters:
        with pytest.raises(NerveError, match=f"no setting '{setting}'|has no"):
            make_method(name, "small", {setting: value})
        return
    with pytest.raises(NerveError, match=f"{setting} is"):
        make_method(name, "small", **{setting: value})


@pytest.mark.parametrize("name", METHODS)
def test_names_and_presets_that_do_not_exist_are_refused_with_the_nearest(name):
    with pytest.raises(NerveError, match="there is no setting 'epochz'"):
        make_method(name, "small", {"epochz": 3})
    with pytest.raises(NerveError, match="Did you mean 'small'"):
        make_method(name, "smal")
    with pytest.raises(NerveError, match="Did you mean"):
        make_method(name + "x")


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_preset_can_be_built_for_a_parcellation_without_allocating_it(name):
    for preset in method_class(name).presets:
        make_method(name, preset, parcellation="schaefer400-17")


def test_what_only_the_regions_can_tell_is_found_before_anything_runs():
    with pytest.raises(NerveError, match="cannot be shared by 5 attention heads"):
        make_method("nerve", "small", {"heads": 5}, parcellation="schaefer100-7")
    with pytest.raises(NerveError, match=r"mask_ratio is 0\.99"):
        make_method("nerve", "small", {"mask_ratio": 0.99}, parcellation="schaefer100-7")
    with pytest.raises(NerveError, match="schaefer200-7"):
        make_method("nerve", "small", {"patching": "schaefer200-7"}, parcellation="schaefer100-7")


@pytest.mark.parametrize("name", METHODS)
def test_no_number_is_too_large_for_torch_and_still_accepted(name):
    for setting in settings_of(name):
        for value in (1e308, 1e30, 10**30, 2**64):
            assert refusal(name, {setting: value}), (setting, value)


@pytest.mark.parametrize("name", ["braingnn", "brainmass"])
def test_batches_of_one_are_refused_where_participants_are_normalised_together(name):
    assert "batch_size is 1" in refusal(name, {"batch_size": 1})


def test_fit_checks_too():
    fc = np.stack([np.corrcoef(np.random.default_rng(i).normal(size=(6, 30))) for i in range(8)])
    with pytest.raises(NerveError, match="width is 0, expected greater than or equal to 1"):
        method_class("graphmae")(width=0).fit(fc)
    with pytest.raises(NerveError, match="n_components is 'many'"):
        method_class("pca")(n_components="many").fit(fc)
