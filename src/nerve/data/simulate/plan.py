"""A simulated cohort: its settings, checked, its participants, their scans, and what was planted."""

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
from nerve.data.simulate import people, population
from nerve.data.simulate.people import Person, Target, default_targets, site_stream, stream
from nerve.data.simulate.population import MODES, Pair, Population, neighbourhood, spectral

NAMED_FACTORS = ("general", "internal", "external")
LEAST = {
    "n": 1,
    "timepoints": 20,
    "seed": 0,
    "structure_seed": 0,
    "session": 1,
    "family_size": 1,
    "n_factors": 0,
}
SITE_SHARPNESS = 0.1  # sd of how strongly a scanner shows the networks at all
MOTION_VARIANCE = 0.15  # added to a region's variance at the median displacement
MOTION_WIDTH = 40.0  # mm: artefacts are alike over this distance
MOTION_GLOBAL = 0.3  # share of the artefact that is alike everywhere
_MOTION_RANK = 12
CHUNK = 64  # participants that are scanned before they are given on


@dataclass(eq=False)
class Plan:
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

    def __post_init__(self) -> None:
        for name, smallest in LEAST.items():
            _whole(name, getattr(self, name), smallest)
        most = 10**people.ID_DIGITS
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
        numbered = [f"factor{k + 1}" for k in range(len(NAMED_FACTORS), self.n_factors)]
        self.factor_names = (*NAMED_FACTORS[: self.n_factors], *numbered)
        self.parcellation: Parcellation = load_parcellation(self.parcellation)
        self.sites: tuple[str, ...] = _site_names(self.sites, self.name)
        self.targets: tuple[Target, ...] = self._checked_targets()
        for name in self.pairs or {}:
            one_of("A factor of pairs", name, (*self.factor_names, "age", "sex"))

    def _checked_targets(self) -> tuple[Target, ...]:
        """The targets, if their names differ and the factors that they name exist."""
        if self.targets is None and self.n_factors < len(NAMED_FACTORS):
            expected = f"at least {len(NAMED_FACTORS)} for the default targets"
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
    def people(self) -> list[Person]:
        """Everyone, without their scans."""
        sizes = self.n_factors, self.family_size, len(self.sites), len(self.targets)
        return [people.draw_person(self.seed, i, *sizes) for i in range(self.n)]

    def participants(self) -> pd.DataFrame:
        """The participants table."""
        prefix = re.sub("[^A-Za-z0-9]", "", self.name) or "simulated"
        drawn = pd.DataFrame(self.people)
        table = pd.DataFrame(
            {
                "participant_id": [
                    f"sub-{prefix}{i + 1:0{people.ID_DIGITS}d}" for i in drawn["number"]
                ]
            }
        )
        if self.family_size > 1:
            table["family_id"] = [
                f"{prefix}-family{i // self.family_size + 1}" for i in drawn["number"]
            ]
        table["site"] = [self.sites[site] for site in drawn["site"]]
        youngest, oldest = self.ages
        table["age"] = (
            (youngest + oldest) / 2 + drawn["age"] * (oldest - youngest) / np.sqrt(12)
        ).round(2)
        table["sex"] = np.where(drawn["sex"] > 0, "F", "M")
        table["mean_fd"] = drawn["displacement"].round(4)
        scores, noise = (
            np.stack(drawn["scores"].tolist()),
            np.stack(drawn["noise"].tolist()),
        )  # (n, factors or targets)
        known = drawn.assign(
            site=people.site_levels(self.sites, self.structure_seed)[drawn["site"]]
        )
        for target, rest in zip(self.targets, noise.T, strict=True):
            covariates = sum(weight * known[name] for name, weight in target.coefficients.items())
            explained = scores @ (target.true_r * target.weights(self.factor_names)) + covariates
            table[target.name] = (explained + np.sqrt(target.noise_variance) * rest).round(6)
        return table

    def series(self, person: Person) -> np.ndarray:
        """(volumes, R): the time series; where they are not kept, `effective_volumes` independent ones."""
        from scipy.signal import lfilter

        regions, signals = self.population.loadings.shape
        shape = (
            self.timepoints if self.keep_timeseries else self.effective_volumes,
            regions + signals + _MOTION_RANK,
        )
        sources = stream("scan", self.seed, person.number, self.session).standard_normal(
            shape, np.float32
        )
        if self.keep_timeseries:  # first-order autoregressive
            sources[1:] *= np.float32(np.sqrt(1 - self.autocorrelation**2))
            sources = np.asarray(
                lfilter([1.0], [1.0, -self.autocorrelation], sources, axis=0), np.float32
            )
        own = np.zeros((regions, signals))  # W, on the level signals of all networks
        levels = stream("topography", self.seed, person.number).standard_normal(
            (regions, signals // MODES)
        )
        own[:, ::MODES] = population.TOPOGRAPHY * levels
        coupling = self.population.coupling_root @ spectral(
            np.exp, self.state(person) / 2
        )  # (K, K)
        mixing = ((self.population.loadings + own) @ coupling).astype(np.float32)  # (R, K)
        artefact = np.float32(np.sqrt(MOTION_VARIANCE * person.displacement / people.MOTION_MEDIAN))
        series = sources[:, :regions] @ self.population.local_root.astype(
            np.float32
        )  # (volumes, R)
        series += sources[:, regions : regions + signals] @ mixing.T
        series += artefact * sources[:, regions + signals :] @ self._artefacts
        series -= np.float32(population.GLOBAL_SIGNAL) * series.mean(axis=1, keepdims=True)
        return np.asarray(series)

    def scans(self) -> Iterator[tuple[np.ndarray, list[np.ndarray] | None]]:
        """(k, R, R) Pearson FC in float32 and, if kept, time series, of some participants after others."""
        for start in range(0, self.n, CHUNK):
            with (
                one_blas_thread()
            ):  # small products: several times faster, and rounded alike on every machine
                some = self.people[start : start + CHUNK]
                series = [self.series(person) for person in some]
                fc = np.stack([pearson(one).astype(np.float32) for one in series])
            yield fc, series if self.keep_timeseries else None

    def state(self, person: Person) -> np.ndarray:
        """(K, K): M, how a participant's coupling of network signals differs from the population's."""
        scores = {
            "age": person.age,
            "sex": person.sex,
            **dict(zip(self.factor_names, person.scores, strict=True)),
        }
        state = sum(score * self.population.effects[name] for name, score in scores.items())
        for spread, visit in (
            (population.OWN_COUPLING, 0),
            (population.SESSION_COUPLING, self.session),
        ):
            state = state + spread * self._symmetric(
                stream("coupling", self.seed, person.number, visit)
            )
        return state + self._site_states[person.site] - self.population.spread

    @cached_property
    def _site_states(self) -> list[np.ndarray]:
        states = []
        for site in self.sites:
            rng = site_stream(self.structure_seed, site)
            sharpness = (
                SITE_SHARPNESS * rng.standard_normal(2)[1]
            )  # the first is the site's level in targets
            coupling = population.SITE_COUPLING * self._symmetric(rng)
            states.append(coupling + sharpness * np.eye(self.population.n_signals))
        return states

    @cached_property
    def _artefacts(self) -> np.ndarray:
        """(rank, R): patterns of motion artefacts, smooth over space, with mean variance 1."""
        near = neighbourhood(self.parcellation, MOTION_WIDTH)
        values, vectors = np.linalg.eigh((1 - MOTION_GLOBAL) * near + MOTION_GLOBAL)
        largest = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, :_MOTION_RANK].T
        patterns = np.pad(largest, ((0, _MOTION_RANK - len(largest)), (0, 0))).astype(np.float32)
        return patterns / np.sqrt((patterns**2).sum(axis=0).mean())

    def _symmetric(self, rng: np.random.Generator) -> np.ndarray:
        square = rng.standard_normal((self.population.n_signals,) * 2)
        return (square + square.T) / np.sqrt(2)

    @cached_property
    def notes(self) -> dict[str, Any]:
        """Notes of the cohort, in plain JSON values: how it was made, and the truth, what was planted."""
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
        truth = {
            **{name: getattr(self, name) for name in [*stated, "keep_timeseries"]},
            "parcellation": self.parcellation.name,
            "effective_volumes": self.effective_volumes,
            "sites": list(self.sites),
            "factors": planted,
            "covariates": covariates,
            "targets": {target.name: self._relation(target, planted) for target in self.targets},
        }
        return {"source": "nerve simulate", "truth": truth}

    def _planted(self, name: str) -> list[dict[str, Any]]:
        networks = self.population.patching.group_names
        planted = zip(
            self.population.pairs_of[name], self.population.change_per_sd(name), strict=True
        )
        return [
            {"networks": [networks[a], networks[b]], "fc_change_per_sd": round(x, 4)}
            for (a, b), x in planted
        ]

    def _relation(
        self, target: Target, factors: Mapping[str, list[dict[str, Any]]]
    ) -> dict[str, Any]:
        weights = zip(self.factor_names, target.weights(self.factor_names), strict=True)
        active = {
            name: round(float(weight), 6) for name, weight in weights if weight and target.true_r
        }
        return {
            "true_r": target.true_r,
            "true_r_after_covariates": round(target.true_r_after_covariates, 6),
            "factors": active,
            "pairs": [entry["networks"] for name in active for entry in factors[name]],
            "coefficients": target.coefficients,
        }


def _whole(name: str, value: Any, smallest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < smallest:
        raise NerveError(f"{name} is {value!r}, expected a whole number of at least {smallest}.")


def _site_names(sites: Any, cohort: str) -> tuple[str, ...]:
    if isinstance(sites, (int, np.integer)):
        _whole("sites", sites, 1)
        return tuple(f"{cohort}-{k + 1}" for k in range(sites))
    names = (sites,) if isinstance(sites, str) else tuple(map(str, sites))
    if not names or len(set(names)) != len(names):
        raise NerveError(f"sites are {list(names)}, expected a number or different names.")
    return names
