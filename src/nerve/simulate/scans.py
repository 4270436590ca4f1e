"""One scan of one simulated participant: time series with the participant's own covariance, and their FC."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nerve.connectivity import pearson
from nerve.simulate.people import MOTION_MEDIAN, Person, mean_displacement, site_stream, stream
from nerve.simulate.population import (
    GLOBAL_SIGNAL,
    MODES,
    OWN_COUPLING,
    SESSION_COUPLING,
    SITE_COUPLING,
    TOPOGRAPHY,
    Population,
    exponential,
    neighbourhood,
)

SITE_SHARPNESS = 0.1  # sd of how strongly a scanner shows the networks at all
MOTION_VARIANCE = 0.15  # added to a region's variance at the median displacement
MOTION_WIDTH = 40.0  # mm: artefacts are alike over this distance
MOTION_GLOBAL = 0.3  # share of the artefact that is alike everywhere
_MOTION_RANK = 12


@dataclass(frozen=True, eq=False)
class Scanner:
    """Scans participants of one population.

    Parameters
    ----------
    population : Population
    sites : tuple of str
        Scanners by name: each distorts FC in its own way.
    seed : int
        Seed of the participants.
    session : int
        Number of the visit: the same participants and seed with another session are scanned again.
    timepoints : int
        Volumes of a scan, T.
    autocorrelation : float
        Correlation φ of successive volumes.
    """

    population: Population
    sites: tuple[str, ...]
    seed: int
    session: int
    timepoints: int
    autocorrelation: float

    @property
    def effective_volumes(self) -> int:
        """Independent volumes that give FC the same sampling noise: T (1 - φ²) / (1 + φ²)."""
        squared = self.autocorrelation**2
        return max(10, round(self.timepoints * (1 - squared) / (1 + squared)))

    def series(self, person: Person, *, independent: bool = False) -> np.ndarray:
        """(volumes, R): the time series; `independent` gives `effective_volumes` white ones instead of T."""
        rng = stream("scan", self.seed, person.number, self.session)
        population = self.population
        regions, signals = population.loadings.shape
        sources = self._volumes(rng, regions + signals + _MOTION_RANK, independent)  # (volumes, sources)
        coupling = population.coupling_root @ exponential(self.state(person) / 2)  # (K, K)
        mixing = ((population.loadings + self.topography(person)) @ coupling).astype(np.float32)  # (R, K)
        artefact = np.float32(np.sqrt(MOTION_VARIANCE * mean_displacement(person) / MOTION_MEDIAN))
        series = sources[:, :regions] @ self._local_root  # (volumes, R)
        series += sources[:, regions : regions + signals] @ mixing.T
        series += artefact * sources[:, regions + signals :] @ self._artefacts
        series -= np.float32(GLOBAL_SIGNAL) * series.mean(axis=1, keepdims=True)
        return np.asarray(series)

    def connectivity(self, person: Person, series: np.ndarray | None = None) -> np.ndarray:
        """(R, R) float32: Pearson FC of the series, or of independent volumes drawn for the purpose."""
        series = self.series(person, independent=True) if series is None else series
        return pearson(series).astype(np.float32)

    def state(self, person: Person) -> np.ndarray:
        """(K, K): M, how a participant's coupling of network signals differs from the population's."""
        effects = self.population.effects
        state = person.age * effects["age"].matrix + person.sex * effects["sex"].matrix
        for name, score in zip(self.population.factor_names, person.scores, strict=True):
            state = state + score * effects[name].matrix
        trait = stream("coupling", self.seed, person.number, 0)
        session = stream("coupling", self.seed, person.number, self.session)
        state = state + OWN_COUPLING * self._symmetric(trait) + SESSION_COUPLING * self._symmetric(session)
        return state + self._site_states[person.site] - self.population.spread

    def topography(self, person: Person) -> np.ndarray:
        """(R, K): W, loadings of a participant's own on the level signals of all networks."""
        regions, signals = self.population.loadings.shape
        own = np.zeros((regions, signals))
        rng = stream("topography", self.seed, person.number)
        own[:, ::MODES] = TOPOGRAPHY * rng.standard_normal((regions, signals // MODES))
        return own

    @cached_property
    def _site_states(self) -> list[np.ndarray]:
        states = []
        for site in self.sites:
            rng = site_stream(self.population.structure_seed, site)
            sharpness = SITE_SHARPNESS * rng.standard_normal(2)[1]  # the first is the site's level in targets
            states.append(SITE_COUPLING * self._symmetric(rng) + sharpness * np.eye(self.population.n_signals))
        return states

    @cached_property
    def _local_root(self) -> np.ndarray:
        return self.population.local_root.astype(np.float32)

    @cached_property
    def _artefacts(self) -> np.ndarray:
        """(rank, R): patterns of motion artefacts, smooth over space, with mean variance 1."""
        near = neighbourhood(self.population.parcellation, MOTION_WIDTH)
        covariance = (1 - MOTION_GLOBAL) * near + MOTION_GLOBAL
        values, vectors = np.linalg.eigh(covariance)
        patterns = np.zeros((_MOTION_RANK, len(near)), np.float32)
        largest = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, :_MOTION_RANK].T
        patterns[: len(largest)] = largest
        return patterns / np.sqrt((patterns**2).sum(axis=0).mean())

    def _volumes(self, rng: np.random.Generator, n_sources: int, independent: bool) -> np.ndarray:
        """(volumes, sources): standard normal, first-order autoregressive in time unless `independent`."""
        if independent:
            return rng.standard_normal((self.effective_volumes, n_sources), np.float32)
        from scipy.signal import lfilter

        innovations = rng.standard_normal((self.timepoints, n_sources), np.float32)
        innovations[1:] *= np.float32(np.sqrt(1 - self.autocorrelation**2))
        return np.asarray(lfilter([1.0], [1.0, -self.autocorrelation], innovations, axis=0), np.float32)

    def _symmetric(self, rng: np.random.Generator) -> np.ndarray:
        square = rng.standard_normal((self.population.n_signals,) * 2)
        return (square + square.T) / np.sqrt(2)
