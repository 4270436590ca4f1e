"""A simulated cohort: its checked settings, its participants, their scans, what was planted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.cores import one_blas_thread
from nerve._utils.errors import NerveError, listed, one_of, require
from nerve.data.connectivity import pearson
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.simulate import participants, population
from nerve.data.simulate.atlases import averages_into, seen_in
from nerve.data.simulate.participants import (
    SimulatedParticipant,
    Target,
    default_targets,
    site_stream,
    stream,
)
from nerve.data.simulate.population import MODES, Pair, Population, neighbourhood, spectral

_NAMED_FACTORS = ("general", "internal", "external")
_SMALLEST = {
    "n": 1,
    "timepoints": 20,
    "seed": 0,
    "structure_seed": 0,
    "session": 1,
    "family_size": 1,
    "n_factors": 0,
}
_SITE_SHARPNESS = 0.1  # sd of how strongly a scanner shows the networks at all
_MOTION_VARIANCE = 0.15  # added to a region's variance at the median displacement
_MOTION_WIDTH = 40.0  # mm: artefacts are alike over this distance
_MOTION_GLOBAL = 0.3  # share of the artefact that is alike everywhere
_MOTION_RANK = 12
CHUNK = 64  # participants that are simulated at a time


@dataclass(eq=False)
class SimulationPlan:
    """The settings of `simulate_cohort`, which describes them."""

    n: int = 300
    parcellation: Any = "schaefer100-17"
    timepoints: int = 200
    seed: int = 0
    structure_seed: int = 0
    name: str = "simulated"
    sites: Any = 3
    targets: Any = None
    pairs: Mapping[str, Sequence[Pair]] | None = None
    n_factors: int = 8
    strength: float = 0.09
    keep_timeseries: bool = True
    session: int = 1
    family_size: int = 1
    ages: tuple[float, float] = (8.0, 22.0)
    autocorrelation: float = 0.7
    seen_in: Any = None

    def __post_init__(self) -> None:
        for name, smallest in _SMALLEST.items():
            _check_whole_number(name, getattr(self, name), smallest)
        most = 10**participants.ID_DIGITS
        require(
            "The settings",
            (self.n < most, f"n is {self.n}", f"fewer than {most} participants"),
            (
                0 <= self.autocorrelation < 1,
                f"autocorrelation is {self.autocorrelation}",
                "at least 0 and below 1",
            ),
            (
                0 <= self.strength <= 0.3,
                f"strength is {self.strength}",
                "a change of FC between 0 and 0.3",
            ),
            (
                0 <= self.ages[0] < self.ages[1],
                f"ages are {tuple(self.ages)}",
                "the youngest and an older oldest",
            ),
        )
        squared = self.autocorrelation**2
        #: Independent volumes that give FC the same sampling noise: T (1 - φ²) / (1 + φ²).
        self.effective_volumes = max(10, round(self.timepoints * (1 - squared) / (1 + squared)))
        numbered = [f"factor{k + 1}" for k in range(len(_NAMED_FACTORS), self.n_factors)]
        self.factor_names = (*_NAMED_FACTORS[: self.n_factors], *numbered)
        self.parcellation: Parcellation = load_parcellation(self.parcellation)
        #: The regions that the cohort has: those simulated, or those they are averaged into.
        self.regions = self.parcellation
        self._averages: np.ndarray | None = None
        if self.seen_in is not None:
            atlas = load_parcellation(self.seen_in)
            self._averages, self.regions = averages_into(self.parcellation, atlas)
        self.sites: tuple[str, ...] = _site_names(self.sites, self.name)
        self.targets: tuple[Target, ...] = self._checked_targets()
        for name in self.pairs or {}:
            one_of("A factor of pairs", name, (*self.factor_names, "age", "sex"))

    def _checked_targets(self) -> tuple[Target, ...]:
        """The targets, if their names differ and the factors that they name exist."""
        if self.targets is None and self.n_factors < len(_NAMED_FACTORS):
            expected = f"at least {len(_NAMED_FACTORS)} for the default targets"
            remedy = "State targets of your own to use fewer."
            raise NerveError(f"n_factors is {self.n_factors}, expected {expected}. {remedy}")
        targets = default_targets() if self.targets is None else tuple(self.targets)
        names = [target.name for target in targets]
        if len(set(names)) != len(names):
            raise NerveError(
                f"Two targets have the same name ({listed(names)}), expected different ones."
            )
        for target in targets:
            for factor in target.factors:
                one_of(f"A factor of target {target.name!r}", factor, self.factor_names)
        return targets

    @cached_property
    def population(self) -> Population:
        """What participants have in common."""
        return Population(
            self.parcellation,
            self.structure_seed,
            self.factor_names,
            self.pairs or {},
            self.strength,
        )

    @cached_property
    def drawn(self) -> list[SimulatedParticipant]:
        """Every participant, without scans."""
        sizes = (self.n_factors, self.family_size, len(self.sites), len(self.targets))
        return [participants.draw_participant(self.seed, i, *sizes) for i in range(self.n)]

    def participants(self) -> pd.DataFrame:
        """Make the participants table.

        Returns
        -------
        DataFrame
        """
        prefix = re.sub("[^A-Za-z0-9]", "", self.name) or "simulated"
        drawn = pd.DataFrame(self.drawn)
        digits = participants.ID_DIGITS
        ids = [f"sub-{prefix}{number + 1:0{digits}d}" for number in drawn["number"]]
        table = pd.DataFrame({"participant_id": ids})
        if self.family_size > 1:
            families = drawn["number"] // self.family_size + 1
            table["family_id"] = [f"{prefix}-family{family}" for family in families]
        table["site"] = [self.sites[site] for site in drawn["site"]]
        youngest, oldest = self.ages
        mean_age = (youngest + oldest) / 2
        table["age"] = (mean_age + drawn["age"] * (oldest - youngest) / np.sqrt(12)).round(2)
        table["sex"] = np.where(drawn["sex"] > 0, "F", "M")
        table["mean_fd"] = drawn["displacement"].round(4)
        scores = np.stack(drawn["scores"].tolist())  # (n, factors)
        noise = np.stack(drawn["noise"].tolist())  # (n, targets)
        site_levels = participants.site_levels(self.sites, self.structure_seed)
        covariates = drawn.assign(site=site_levels[drawn["site"]])
        for number, target in enumerate(self.targets):
            by_covariates = sum(
                weight * covariates[name] for name, weight in target.coefficients.items()
            )
            by_factors = scores @ (target.true_r * target.weights(self.factor_names))
            by_noise = np.sqrt(target.noise_variance) * noise[:, number]
            table[target.name] = (by_factors + by_covariates + by_noise).round(6)
        return table

    def series(self, participant: SimulatedParticipant) -> np.ndarray:
        """Simulate the time series of one participant.

        Parameters
        ----------
        participant : SimulatedParticipant

        Returns
        -------
        (volumes, R) float32 array
            Where time series are not kept, `effective_volumes` independent volumes.
        """
        from scipy.signal import lfilter

        n_regions, n_signals = self.population.loadings.shape
        n_volumes = self.timepoints if self.keep_timeseries else self.effective_volumes
        shape = (n_volumes, n_regions + n_signals + _MOTION_RANK)
        rng = stream("scan", self.seed, participant.number, self.session)
        sources = rng.standard_normal(shape, np.float32)
        if self.keep_timeseries:  # first-order autoregressive
            sources[1:] *= np.float32(np.sqrt(1 - self.autocorrelation**2))
            filtered = lfilter([1.0], [1.0, -self.autocorrelation], sources, axis=0)
            sources = np.asarray(filtered, np.float32)
        # W, the participant's own topography, on the level signals of all networks
        rng = stream("topography", self.seed, participant.number)
        topography = np.zeros((n_regions, n_signals))
        levels = rng.standard_normal((n_regions, n_signals // MODES))
        topography[:, ::MODES] = population.TOPOGRAPHY * levels
        change = spectral(np.exp, self.state(participant) / 2)
        coupling = self.population.coupling_root @ change  # (K, K)
        mixing = (self.population.loadings + topography) @ coupling  # (R, K)
        mixing = mixing.astype(np.float32)
        motion = participant.displacement / participants.MOTION_MEDIAN
        artefact = np.float32(np.sqrt(_MOTION_VARIANCE * motion))
        local_root = self.population.local_root.astype(np.float32)
        series = sources[:, :n_regions] @ local_root  # (volumes, R)
        series += sources[:, n_regions : n_regions + n_signals] @ mixing.T
        series += artefact * sources[:, n_regions + n_signals :] @ self._artefacts
        series -= np.float32(population.GLOBAL_SIGNAL) * series.mean(axis=1, keepdims=True)
        return np.asarray(series)

    def scans(self) -> Iterator[tuple[np.ndarray, list[np.ndarray] | None]]:
        """Simulate all scans, some participants at a time.

        Yields
        ------
        fc : (k, R, R) float32 array
            Pearson correlations.
        series : list of (volumes, R) arrays, optional
            If they are kept.
        """
        for start in range(0, self.n, CHUNK):
            # products are small: one thread is several times faster, and rounds alike everywhere
            with one_blas_thread():
                chunk = self.drawn[start : start + CHUNK]
                series = [self.series(participant) for participant in chunk]
                if self._averages is not None:
                    series = [seen_in(part, self._averages) for part in series]
                fc = np.stack([pearson(part).astype(np.float32) for part in series])
            yield fc, series if self.keep_timeseries else None

    def state(self, participant: SimulatedParticipant) -> np.ndarray:
        """Compute M: how a participant's coupling differs from the population's.

        Parameters
        ----------
        participant : SimulatedParticipant

        Returns
        -------
        (K, K) array
        """
        scores = {"age": participant.age, "sex": participant.sex}
        scores |= dict(zip(self.factor_names, participant.scores, strict=True))
        state = sum(score * self.population.effects[name] for name, score in scores.items())
        own = self._symmetric(stream("coupling", self.seed, participant.number, 0))
        state = state + population.OWN_COUPLING * own
        visit = self._symmetric(stream("coupling", self.seed, participant.number, self.session))
        state = state + population.SESSION_COUPLING * visit
        return state + self._site_states[participant.site] - self.population.spread

    @cached_property
    def _site_states(self) -> list[np.ndarray]:
        states = []
        for site in self.sites:
            rng = site_stream(self.structure_seed, site)
            # the first number is the site's level in targets
            sharpness = _SITE_SHARPNESS * rng.standard_normal(2)[1]
            coupling = population.SITE_COUPLING * self._symmetric(rng)
            states.append(coupling + sharpness * np.eye(self.population.n_signals))
        return states

    @cached_property
    def _artefacts(self) -> np.ndarray:
        """(rank, R): patterns of motion artefacts, smooth over space, with mean variance 1."""
        near = neighbourhood(self.parcellation, _MOTION_WIDTH)
        values, vectors = np.linalg.eigh((1 - _MOTION_GLOBAL) * near + _MOTION_GLOBAL)
        largest = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, :_MOTION_RANK].T
        patterns = np.pad(largest, ((0, _MOTION_RANK - len(largest)), (0, 0))).astype(np.float32)
        return patterns / np.sqrt((patterns**2).sum(axis=0).mean())

    def _symmetric(self, rng: np.random.Generator) -> np.ndarray:
        square = rng.standard_normal((self.population.n_signals,) * 2)
        return (square + square.T) / np.sqrt(2)

    @cached_property
    def notes(self) -> dict[str, Any]:
        """Notes of the cohort, as JSON: how it was made, and the truth that was planted."""
        stated = [
            "seed",
            "structure_seed",
            "session",
            "n",
            "timepoints",
            "autocorrelation",
            "strength",
            "family_size",
        ]
        with one_blas_thread():
            planted = {name: self._planted(name) for name in (*self.factor_names, "age", "sex")}
        covariates = {name: planted.pop(name) for name in ("age", "sex")}
        seen = {} if self.seen_in is None else {"seen_in": self.regions.name}
        truth = {
            **{name: getattr(self, name) for name in [*stated, "keep_timeseries"]},
            "parcellation": self.parcellation.name,
            **seen,
            "effective_volumes": self.effective_volumes,
            "sites": list(self.sites),
            "factors": planted,
            "covariates": covariates,
            "targets": {target.name: self._relation(target, planted) for target in self.targets},
        }
        return {"source": "nerve simulate", "truth": truth}

    def _planted(self, name: str) -> list[dict[str, Any]]:
        networks = self.population.patching.group_names
        pairs = self.population.pairs_of[name]
        changes = self.population.change_per_sd(name)
        planted = []
        for (row, column), change in zip(pairs, changes, strict=True):
            names = [networks[row], networks[column]]
            planted.append({"networks": names, "fc_change_per_sd": round(change, 4)})
        return planted

    def _relation(
        self, target: Target, factors: Mapping[str, list[dict[str, Any]]]
    ) -> dict[str, Any]:
        active = {}
        pairs = []
        for name, weight in zip(self.factor_names, target.weights(self.factor_names), strict=True):
            if weight and target.true_r:
                active[name] = round(float(weight), 6)
                pairs += [entry["networks"] for entry in factors[name]]
        return {
            "true_r": target.true_r,
            "true_r_after_covariates": round(target.true_r_after_covariates, 6),
            "factors": active,
            "pairs": pairs,
            "coefficients": target.coefficients,
        }


def _check_whole_number(name: str, value: Any, smallest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < smallest:
        raise NerveError(f"{name} is {value!r}, expected a whole number of at least {smallest}.")


def _site_names(sites: Any, cohort: str) -> tuple[str, ...]:
    if isinstance(sites, (int, np.integer)):
        _check_whole_number("sites", sites, 1)
        return tuple(f"{cohort}-{k + 1}" for k in range(sites))
    names = (sites,) if isinstance(sites, str) else tuple(map(str, sites))
    if not names or len(set(names)) != len(names):
        raise NerveError(f"sites are {list(names)}, expected a number or different names.")
    return names
