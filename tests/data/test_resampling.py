"""FC and series carried to other regions: exact where they must be, near the truth elsewhere, refused where absurd."""

import numpy as np
import pandas as pd
import pytest

import nerve
from nerve._utils.errors import NerveError
from nerve.data import lazy_arrays
from nerve.data.cohort import Cohort
from nerve.data.connectivity import pearson
from nerve.data.lazy_arrays import Stack
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.resampling import FARTHEST, Resampling, in_words
from nerve.data.resampling_weights import is_cortical


@pytest.fixture(scope="module")
def cohort():
    return nerve.simulate_cohort(12, "schaefer200-17", 90, name="two hundred")


def literal(fc, weights):
    """Φ X Φᵀ brought back to correlations, entry by entry."""
    covariance = np.zeros((len(weights), len(weights)))
    for a, first in enumerate(weights):
        for b, second in enumerate(weights):
            covariance[a, b] = first @ fc @ second
    scale = np.sqrt(np.diag(covariance))
    return covariance / np.outer(scale, scale)


def test_fc_is_the_literal_formula(cohort):
    resampling = Resampling.between("schaefer200-17", "schaefer100-17")
    found = resampling.apply(cohort.connectivity)
    expected = literal(cohort.connectivity[3].astype(float), resampling.weights)
    assert np.allclose(found[3], expected, atol=1e-5)


def test_weights_are_the_literal_gaussian_of_one_hemisphere():
    resampling = Resampling.between("schaefer200-17", "schaefer100-17", width=9.0)
    source = load_parcellation("schaefer200-17")
    target = load_parcellation("schaefer100-17")
    for region in (0, 60):
        squares = ((source.coordinates - target.coordinates[region]) ** 2).sum(axis=1)
        weights = np.exp(-squares / (2 * 9.0**2))
        weights[np.array(source.hemispheres) != target.hemispheres[region]] = 0
        assert np.allclose(resampling.weights[region], weights / weights.sum())


def test_both_routes_agree(cohort):
    """Averaged series and averaged FC are the same matrix."""
    carried = cohort.resample("schaefer100-17")
    for series, fc in zip(carried.timeseries, carried.connectivity, strict=True):
        assert np.abs(pearson(np.asarray(series, float)) - fc).max() < 2e-6


def test_routes_differ_where_fc_is_not_that_of_the_series(cohort):
    """The comparison above can fail: FC of the first half is not that of the whole scan."""
    halves = [np.asarray(series)[:45] for series in cohort.timeseries]
    other = Cohort(cohort.connectivity, cohort.participants, cohort.parcellation, halves)
    carried = other.resample("schaefer100-17")
    series = np.asarray(carried.timeseries[0], float)
    assert np.abs(pearson(series) - carried.connectivity[0]).max() > 0.05


def test_equal_parcellations_are_the_identity(cohort):
    same = cohort.resample("schaefer200-17")
    assert same is cohort
    resampling = Resampling.between("schaefer200-17", "schaefer200-17")
    assert np.array_equal(resampling.weights, np.eye(200))
    assert np.array_equal(resampling.apply(cohort.connectivity), cohort.connectivity)


def test_the_other_order_is_a_reordering(cohort):
    reordered = cohort.resample("schaefer200-7")
    assert np.array_equal(reordered.connectivity, cohort.align("schaefer200-7").connectivity)
    assert "resampled" not in reordered.notes


def test_the_same_labels_at_other_places_are_not_a_reordering():
    """Two atlases may both call their regions 1, 2 …"""
    atlas = load_parcellation("schaefer100-17")
    labels = tuple(str(region) for region in range(100))
    one = Parcellation(labels, atlas.networks, atlas.hemispheres, atlas.coordinates, "one")
    turned = np.arange(100)[::-1]
    sides = tuple(atlas.hemispheres[region] for region in turned)
    networks = tuple(atlas.networks[region] for region in turned)
    other = Parcellation(labels, networks, sides, atlas.coordinates[turned], "other")
    resampling = Resampling.between(one, other)
    assert resampling.method == "centres"
    assert np.array_equal(resampling.weights.argmax(axis=1), turned)


def test_hemispheres_and_tissues_are_not_mixed():
    resampling = Resampling.between("cc200", "schaefer200-17")
    used = resampling.weights > 1e-12
    source = load_parcellation("cc200")
    target = load_parcellation("schaefer200-17")
    left = np.array(target.hemispheres) == "L"
    assert source.coordinates[used[left].any(axis=0), 0].max() <= 4.0
    assert source.coordinates[used[~left].any(axis=0), 0].min() >= -4.0
    assert not used[:, ~is_cortical(source)].any()


def test_cortex_is_told_by_place_where_networks_say_nothing():
    found = is_cortical(load_parcellation("cc200"))
    assert 160 < found.sum() < 172
    assert is_cortical(load_parcellation("schaefer100-17")).all()
    below = is_cortical(load_parcellation("schaefer400-17+aseg19"))
    assert not below[400:].any()


def test_structures_below_the_cortex_of_both_atlases_are_taken_by_label():
    resampling = Resampling.between("schaefer400-17+aseg19", "schaefer200-17+aseg19")
    assert np.array_equal(resampling.weights[200:, 400:], np.eye(19))
    assert not resampling.weights[200:, :400].any()
    assert not resampling.weights[:200, 400:].any()


def test_targets_without_a_source_are_refused():
    with pytest.raises(
        NerveError, match=r"19 of 219 regions have no region of schaefer400-17 .*25 mm"
    ):
        Resampling.between("schaefer400-17", "schaefer200-17+aseg19")
    atlas = load_parcellation("schaefer400-17")
    front = atlas.subset(np.flatnonzero(atlas.coordinates[:, 1] > 0), name="front")
    with pytest.raises(NerveError, match="within 25 mm"):
        Resampling.between(front, "schaefer100-17")
    assert FARTHEST == 25.0
    wide = Resampling.between(front, "schaefer100-17", farthest=500)
    assert wide.nearest.max() > 25


def test_an_atlas_without_centres_is_refused_by_name():
    atlas = Parcellation(("a", "b"), ("x", "x"), name="letters")
    with pytest.raises(NerveError, match="letters: 0 of its 2 regions have an MNI centre"):
        Resampling.between(atlas, "schaefer100-17")


def test_a_missing_region_gives_its_weight_to_the_others(cohort):
    fc = cohort.connectivity[:2].copy()
    fc[1, 5] = np.nan
    fc[1, :, 5] = np.nan
    resampling = Resampling.between("schaefer200-17", "schaefer100-17")
    found = resampling.apply(fc)
    kept = np.arange(200) != 5
    weights = resampling.weights[:, kept]
    weights = weights / weights.sum(axis=1, keepdims=True)
    assert np.allclose(found[1], literal(fc[1][np.ix_(kept, kept)], weights), atol=1e-5)
    assert np.allclose(found[0], resampling.apply(cohort.connectivity)[0], atol=1e-6)


def test_only_correlations_are_carried(cohort):
    other = Cohort(
        cohort.connectivity, cohort.participants, cohort.parcellation, measure="fisher_z"
    )
    with pytest.raises(NerveError, match="holds Fisher z, expected Pearson correlations"):
        other.resample("schaefer100-17")


def test_a_large_stack_is_carried_when_it_is_read(cohort, monkeypatch):
    in_memory = cohort.resample("schaefer100-17")
    monkeypatch.setattr(lazy_arrays, "MATERIALISE_BELOW", 1000)
    lazy = cohort.resample("schaefer100-17")
    assert isinstance(lazy.connectivity, Stack)
    assert np.allclose(lazy.connectivity[[7, 2]], in_memory.connectivity[[7, 2]], atol=1e-6)
    rows = lazy.connectivity.row_of_region(3)
    assert np.allclose(rows, in_memory.connectivity[:, 3], atol=1e-6)
    chosen = lazy.subset([4, 1]).align("schaefer100-7")
    expected = in_memory.subset([4, 1]).align("schaefer100-7")
    assert np.allclose(np.asarray(chosen), np.asarray(expected), atol=1e-6)


def test_a_resampled_cohort_is_saved_with_how(cohort, tmp_path):
    cohort.resample("schaefer100-17").save(tmp_path / "hundred")
    loaded = Cohort.load(tmp_path / "hundred")
    assert loaded.parcellation == load_parcellation("schaefer100-17")
    assert loaded.notes["resampled"]["source"] == "schaefer200-17"
    assert "schaefer200-17 (200 regions) → schaefer100-17" in in_words(loaded.notes["resampled"])
    assert not loaded.changes


def test_the_report_has_a_row_per_target_region():
    resampling = Resampling.between("schaefer400-17", "schaefer100-17")
    table = resampling.report()
    assert list(table.columns) == ["label", "network", "nearest", "nearest_mm", "n_effective"]
    assert len(table) == 100
    weights = resampling.weights[10]
    assert table["n_effective"][10] == pytest.approx(1 / (weights**2).sum())
    assert 1 <= table["n_effective"].min() <= table["n_effective"].max() < 20


def coarse(fine, name):
    """Which regions of a fine atlas lie nearest to each region of a coarse one."""
    atlas = load_parcellation(name)
    distances = np.linalg.norm(fine.coordinates[:, None] - atlas.coordinates, axis=2)
    distances[np.array(fine.hemispheres)[:, None] != np.array(atlas.hemispheres)] = np.inf
    nearest = distances.argmin(axis=1)
    members = nearest == np.unique(nearest)[:, None]
    return members / members.sum(axis=1, keepdims=True)


def test_carried_fc_is_near_the_truth_and_permuted_weights_are_not():
    """One population, measured in 400 small regions, averaged into two atlases."""
    fine = load_parcellation("schaefer400-17")
    people = nerve.simulate_cohort(20, fine, 120)
    series = [np.asarray(part, float) for part in people.timeseries]
    seen = {}
    for name in ("schaefer200-17", "schaefer100-17"):
        members = coarse(fine, name)
        centres = members @ fine.coordinates
        labels = tuple(f"{name} {row}" for row in range(len(members)))
        atlas = Parcellation(labels, ("cortex",) * len(labels), coordinates=centres, name=name)
        standardised = [(part - part.mean(axis=0)) / part.std(axis=0) for part in series]
        seen[name] = (atlas, np.stack([pearson(part @ members.T) for part in standardised]))
    (here, fc), (there, truth) = seen["schaefer200-17"], seen["schaefer100-17"]
    resampling = Resampling.between(here, there)
    rows, columns = np.triu_indices(there.n_regions, 1)

    def departures(matrices):
        entries = matrices[:, rows, columns]
        return entries - entries.mean(axis=0)

    def agreement(found):
        pairs = zip(departures(found), departures(truth), strict=True)
        return np.mean([np.corrcoef(mine, theirs)[0, 1] for mine, theirs in pairs])

    assert agreement(resampling.carry(fc)) > 0.85
    shuffled = np.random.default_rng(0).permutation(here.n_regions)
    assert agreement(resampling.carry(fc[:, shuffled][:, :, shuffled])) < 0.3


def test_weights_by_overlap_of_images(tmp_path):
    """Two label images of a line of voxels: shares of voxels, counted by hand."""
    nibabel = pytest.importorskip("nibabel")
    pytest.importorskip("nilearn")
    source = np.zeros((6, 2, 2), np.int16)
    source[:3] = 10
    source[3:] = 20
    target = np.zeros((6, 2, 2), np.int16)
    target[:2] = 1
    target[2:6] = 5
    images = []
    for name, array in (("source", source), ("target", target)):
        path = tmp_path / f"{name}.nii.gz"
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), path)
        images.append(path)
    here = Parcellation(("a", "b"), ("x", "x"), name="here")
    there = Parcellation(("c", "d"), ("x", "x"), name="there")
    resampling = Resampling.between(here, there, images=tuple(images))
    assert np.allclose(resampling.weights, [[1, 0], [0.25, 0.75]])
    assert resampling.method == "overlap"
    fc = np.array([[[1.0, 0.2], [0.2, 1.0]]])
    found = resampling.apply(fc)[0, 0, 1]
    assert found == pytest.approx(literal(fc[0], resampling.weights)[0, 1], abs=1e-6)
    three = Parcellation(("a", "b", "c"), ("x",) * 3, name="three")
    with pytest.raises(NerveError, match="2 labels, expected one for each of its 3 regions"):
        Resampling.between(three, there, images=tuple(images))


def test_refusals_of_other_regions_name_the_command(cohort):
    for call in (
        lambda: cohort.align("schaefer100-17"),
        lambda: Cohort.concat([cohort, other_cohort()]),
        lambda: cohort.align("cc200"),
    ):
        with pytest.raises(
            NerveError, match=r"nerve resample COHORT OUT --parcellation (schaefer|cc)\d+"
        ):
            call()


def other_cohort():
    fc = np.eye(100, dtype=np.float32)[None]
    return Cohort(fc, pd.DataFrame({"participant_id": ["x"]}), "schaefer100-17", name="other")
