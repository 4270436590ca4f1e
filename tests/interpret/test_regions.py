"""Hidden regions: the literal definition, a planted region, and a map for every NERVE model."""

from types import SimpleNamespace

import numpy as np
import pytest

import nerve
from nerve import NERVE, NerveError
from nerve._utils.files import read_json
from nerve.core.patching import Patching
from nerve.core.views import FCView
from nerve.interpret import interpret_to, region_occlusion
from nerve.report.figures import draw
from nerve.report.report_data import ReportData

pytestmark = pytest.mark.xdist_group("interpret")  # they share cohort and encoders


class ReadsRegions:
    """An encoder whose features are sums of FC of a few regions."""

    def __init__(self, parcellation, regions, seed=0):
        self.parcellation_ = parcellation
        self.patching_ = Patching.from_parcellation(parcellation)
        self.module_ = SimpleNamespace()
        self.view_ = FCView()
        self.regions = regions
        self.seed = seed

    def align_to_fitted(self, cohort):
        return cohort

    def patch_dataset(self, cohort):
        return SimpleNamespace(matrices=lambda rows: cohort.inputs("fc", rows))

    def embed_matrices(self, matrices):
        return matrices[:, self.regions].sum(axis=2)


def test_planted_regions_come_first_and_their_neighbours_hardly_count(cohort):
    planted = [7, 60]
    table = region_occlusion(ReadsRegions(cohort.parcellation, planted), cohort)
    assert set(table["rank"].iloc[planted]) == {1, 2}
    assert table["change"].iloc[planted].min() > 3 * table["change"].drop(planted).max()
    assert table["change"].mean() == pytest.approx(1)


@pytest.mark.slow
def test_the_map_is_the_literal_definition(cohort, encoders):
    few = cohort.subset(range(5))
    table = region_occlusion(encoders, few)
    maps = []
    for encoder in encoders:
        x = encoder.view_.apply(few.inputs("fc", np.arange(5)))
        changes = []
        for region in range(x.shape[1]):
            hidden = x.copy()
            hidden[:, region, :] = x[:, region, :].mean(axis=0)
            hidden[:, :, region] = x[:, :, region].mean(axis=0)
            moved = encoder.embed_matrices(hidden) - encoder.embed_matrices(x)
            changes.append(np.linalg.norm(moved, axis=1).mean())
        maps.append(np.array(changes) / np.mean(changes))
    np.testing.assert_allclose(table["change"], np.mean(maps, axis=0), rtol=1e-3)
    np.testing.assert_allclose(table["change_sd"], np.std(maps, axis=0, ddof=1), atol=1e-3)
    assert table["stability"].iloc[0] == pytest.approx(np.corrcoef(maps)[0, 1], abs=1e-2)
    assert list(table["region"]) == list(cohort.parcellation.labels)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"init": "signs"}, {"tokenizer": "shared"}, {"depth": 0}])
def test_a_model_whose_weights_say_nothing_has_a_map_of_hidden_regions(tmp_path, cohort, settings):
    given = {"dim": 8, "depth": 1, "epochs": 1, "n_components": 4, "heads": 2, "decoder_dim": 8}
    encoder = NERVE.from_preset("small", device="cpu", **(given | settings)).fit(cohort)
    tables = interpret_to(tmp_path, encoder, cohort.subset(range(12)))
    assert "network_weights" not in tables
    assert (tmp_path / "interpretation" / "region_occlusion.tsv").is_file()
    assert "region_occlusion" in read_json(tmp_path / "interpretation" / "stability.json")
    figure = draw("interpretation_weights", ReportData(interpretation=tables))
    drawn = np.concatenate([dots.get_offsets()[:, 0] for dots in figure.axes[0].collections])
    np.testing.assert_allclose(sorted(drawn), sorted(tables["region_occlusion"]["change"]))


@pytest.mark.slow
def test_weights_that_differ_are_preferred(tmp_path, cohort, encoders):
    tables = interpret_to(tmp_path, encoders, cohort.subset(range(12)))
    assert "network_weights" in tables
    assert "region_occlusion" not in tables


def test_other_methods_are_refused_by_name(cohort):
    other = SimpleNamespace(module_=None, parcellation_=cohort.parcellation)
    with pytest.raises(NerveError, match=r"region_occlusion of SimpleNamespace.*expected NERVE"):
        region_occlusion(other, cohort)
    assert "region_occlusion" in dir(nerve.interpret)
