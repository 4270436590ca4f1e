"""Weights on the brain: right place, from files that nilearn ships."""

import socket
import sys

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("nilearn")

import nerve
from nerve.interpret import network_weights
from nerve.report.figures import draw, svg
from nerve.report.figures.interpretation import REACH, on_surface
from nerve.report.report_data import NothingToDraw, ReportData

pytestmark = pytest.mark.xdist_group("interpret")  # they share cohort and encoders


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a figure asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_each_vertex_has_the_value_of_the_nearest_region_of_its_hemisphere():
    from nilearn.datasets import fetch_surf_fsaverage  # a second of imports, for this test alone
    from nilearn.surface import load_surf_mesh

    table = nerve.load_parcellation("schaefer100-7").to_table()
    table["value"] = np.arange(100.0)
    for side, letter in (("left", "L"), ("right", "R")):
        vertices = load_surf_mesh(fetch_surf_fsaverage("fsaverage5")[f"pial_{side}"]).coordinates
        values = on_surface(table, vertices, side)
        here = table[table["hemisphere"] == letter]
        for vertex in (0, 500, 9000):
            distance = np.linalg.norm(here[["x", "y", "z"]].to_numpy() - vertices[vertex], axis=1)
            expected = here["value"].iloc[distance.argmin()] if distance.min() <= REACH else np.nan
            assert values[vertex] == pytest.approx(expected, nan_ok=True)
        assert set(values[np.isfinite(values)]) == set(here["value"])  # every region is seen


@pytest.mark.slow
def test_a_learned_map_is_a_small_vector_figure_of_the_regions_that_have_coordinates(encoders):
    table = network_weights(encoders)
    nowhere = table.assign(x=np.nan, y=np.nan, z=np.nan)
    with pytest.raises(NothingToDraw, match="coordinates"):
        draw("interpretation_brain", ReportData(interpretation={"network_weights": nowhere}))
    some = pd.concat([table, nowhere.head(3)])
    figure = draw("interpretation_brain", ReportData(interpretation={"network_weights": some}))
    assert len(svg(figure)) < 1_500_000


def test_without_nilearn_the_flat_figure_remains_and_a_sentence_names_the_extra(monkeypatch):
    table = nerve.load_parcellation("schaefer100-7").to_table()
    table = table.rename(columns={"label": "region"}).assign(change=np.arange(100.0))
    results = ReportData(interpretation={"region_occlusion": table})
    monkeypatch.setitem(sys.modules, "nilearn.plotting", None)
    with pytest.raises(NothingToDraw, match=r"pip install \"nerve-fc\[fmri\]\""):
        draw("interpretation_brain", results)
    assert draw("interpretation_weights", results).axes
