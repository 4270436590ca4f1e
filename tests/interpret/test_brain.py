"""Weights on the brain: right place, from files that nilearn ships."""

import socket

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("nilearn")

from nilearn.datasets import fetch_surf_fsaverage
from nilearn.surface import load_surf_mesh

import nerve
from nerve.interpret import network_weights
from nerve.report.figures import draw, svg
from nerve.report.figures.interpretation import REACH, on_surface
from nerve.report.results import NothingToDraw, Results

pytestmark = pytest.mark.xdist_group("interpret")  # they share cohort and encoders


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a figure asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_each_vertex_has_the_weight_of_the_nearest_region_of_its_hemisphere():
    table = nerve.load_parcellation("schaefer100-7").to_table()
    table["weight"] = np.arange(100.0)
    for side, letter in (("left", "L"), ("right", "R")):
        vertices = load_surf_mesh(fetch_surf_fsaverage("fsaverage5")[f"pial_{side}"]).coordinates
        values = on_surface(table, vertices, side)
        here = table[table["hemisphere"] == letter]
        for vertex in (0, 500, 9000):
            distance = np.linalg.norm(here[["x", "y", "z"]].to_numpy() - vertices[vertex], axis=1)
            expected = here["weight"].iloc[distance.argmin()] if distance.min() <= REACH else np.nan
            assert values[vertex] == pytest.approx(expected, nan_ok=True)
        assert set(values[np.isfinite(values)]) == set(here["weight"])  # every region is seen


@pytest.mark.slow
def test_a_learned_map_is_drawn_offline_as_a_small_vector_figure(encoders):
    results = Results(interpretation={"network_weights": network_weights(encoders)})
    text = svg(draw("interpretation_brain", results))
    assert len(text) < 1_500_000


@pytest.mark.slow
def test_regions_without_coordinates_are_left_out_and_none_is_a_sentence(encoders):
    table = network_weights(encoders[0])
    nowhere = table.assign(x=np.nan, y=np.nan, z=np.nan)
    with pytest.raises(NothingToDraw, match="coordinates"):
        draw("interpretation_brain", Results(interpretation={"network_weights": nowhere}))
    some = pd.concat([table, nowhere.head(3)])
    assert draw("interpretation_brain", Results(interpretation={"network_weights": some})).axes
