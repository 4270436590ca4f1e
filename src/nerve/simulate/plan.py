"""The plan of a simulated cohort: its settings, checked, and what follows from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError, did_you_mean, listed, problem
from nerve.parcellation import Parcellation, load_parcellation
from nerve.simulate import people
from nerve.simulate.people import Person, Target, default_targets
from nerve.simulate.population import Pair, Population
from nerve.simulate.scans import Scanner

NAMED_FACTORS = ("general", "internal", "external")
MIN_TIMEPOINTS = 20


@dataclass(eq=False)
class Plan:
    """The settings of `simulate_cohort`, which describes them."""

    n: int = 300
    parcellation: Any = "schaefer100-17"
    timepoints: int = 200
    seed: int = 0
    structure_seed: int = 0
    name: str = "simulated"
    sites: int | Sequence[str] = 3
    targets: Sequence[Target] | None = None
    pairs: Mapping[str, Sequence[Pair]] | None = None
    n_factors: int = 8
    strength: float = 0.09
    keep_timeseries: bool = True
    session: int = 1
    family_size: int = 1
    ages: tuple[float, float] = (8.0, 22.0)
    autocorrelation: float = 0.7
    site_names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        least = {"n": 1, "timepoints": MIN_TIMEPOINTS, "seed": 0, "structure_seed": 0, "session": 1, "family_size": 1}
        for name, smallest in (least | {"n_factors": 0}).items():
            _whole(name, getattr(self, name), smallest)
        if self.n >= 10**people.ID_DIGITS:
            raise NerveError(f"n is {self.n}, expected fewer than {10**people.ID_DIGITS} participants.")
        if not 0 <= self.autocorrelation < 1:
            raise NerveError(f"autocorrelation is {self.autocorrelation}, expected at least 0 and below 1.")
        if not 0 <= self.strength <= 0.3:
            raise NerveError(f"strength is {self.strength}, expected a change of FC between 0 and 0.3.")
        if not 0 <= self.ages[0] < self.ages[1]:
            raise NerveError(f"ages are {tuple(self.ages)}, expected the youngest and an older oldest, in years.")
        self.parcellation: Parcellation = load_parcellation(self.parcellation)
        self.site_names = _site_names(self.sites, self.name)
        self.targets = people.checked_targets(self._wanted_targets(), self.factor_names)
        known = (*self.factor_names, "age", "sex")
        for name in self.pairs or {}:
            if name not in known:
                remedy, expected = did_you_mean(name, known).strip(), f"one of {listed(known, most=20)}"
                raise problem("pairs", f"there is no factor {name!r}", expected=expected, remedy=remedy)

    def _wanted_targets(self) -> Sequence[Target]:
        if self.targets is not None:
            return self.targets
        if self.n_factors < len(NAMED_FACTORS):
            raise NerveError(
                f"n_factors is {self.n_factors}, expected at least {len(NAMED_FACTORS)} for the default targets. "
                "State targets of your own to use fewer."
            )
        return default_targets()

    @property
    def factor_names(self) -> tuple[str, ...]:
        """The named factors, then factor4, factor5 …"""
        numbered = [f"factor{k + 1}" for k in range(len(NAMED_FACTORS), self.n_factors)]
        return (*NAMED_FACTORS[: self.n_factors], *numbered)

    @cached_property
    def population(self) -> Population:
        """What participants have in common."""
        return Population(self.parcellation, self.structure_seed, self.factor_names, self.pairs or {}, self.strength)

    @cached_property
    def scanner(self) -> Scanner:
        """What scans them."""
        return Scanner(self.population, self.site_names, self.seed, self.session, self.timepoints, self.autocorrelation)

    @cached_property
    def people(self) -> list[Person]:
        """Everyone, without their scans."""
        sizes = self.n_factors, len(self.site_names), len(self.targets or ()), self.family_size
        return [people.draw_person(self.seed, i, *sizes) for i in range(self.n)]

    def participants(self) -> pd.DataFrame:
        """The participants table."""
        prefix = "sub-" + (re.sub("[^A-Za-z0-9]", "", self.name) or "simulated")
        levels = people.site_levels(self.site_names, self.structure_seed)
        rows = []
        for person in self.people:
            row: dict[str, Any] = {"participant_id": f"{prefix}{person.number + 1:0{people.ID_DIGITS}d}"}
            if self.family_size > 1:
                row["family_id"] = f"{prefix[4:]}-family{person.number // self.family_size + 1}"
            row |= people.described(person, self.site_names, self.ages)
            row |= people.target_values(person, self.targets or (), self.factor_names, levels)
            rows.append(row)
        return pd.DataFrame(rows)

    def notes(self) -> dict[str, Any]:
        """Notes of the cohort: how it was made, and the truth."""
        return {"source": "nerve simulate", "truth": self.truth}

    @cached_property
    def truth(self) -> dict[str, Any]:
        """What was planted, in plain JSON values."""
        stated = ["seed", "structure_seed", "session", "n", "timepoints", "autocorrelation", "strength", "family_size"]
        factors = {name: self._planted(name) for name in self.factor_names}
        return {
            **{name: getattr(self, name) for name in [*stated, "keep_timeseries"]},
            "parcellation": self.parcellation.name,
            "effective_volumes": self.scanner.effective_volumes,
            "sites": list(self.site_names),
            "factors": factors,
            "covariates": {name: self._planted(name) for name in ("age", "sex")},
            "targets": {target.name: self._relation(target, factors) for target in self.targets or ()},
        }

    def _planted(self, name: str) -> list[dict[str, Any]]:
        pairs = self.population.effects[name].pairs
        changes = self.population.change_per_sd(name)
        planted = zip(pairs, changes, strict=True)
        return [{"networks": list(pair), "fc_change_per_sd": round(change, 4)} for pair, change in planted]

    def _relation(self, target: Target, factors: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
        weights = dict(zip(self.factor_names, target.weights(self.factor_names), strict=True))
        active = {name: round(float(weight), 6) for name, weight in weights.items() if weight and target.true_r}
        return {
            "true_r": target.true_r,
            "true_r_after_covariates": round(target.true_r_after_covariates, 6),
            "factors": active,
            "pairs": [entry["networks"] for name in active for entry in factors[name]],
            "coefficients": {name: getattr(target, name) for name in ("age", "sex", "site", "motion")},
        }


def _whole(name: str, value: Any, smallest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < smallest:
        raise NerveError(f"{name} is {value!r}, expected a whole number of at least {smallest}.")


def _site_names(sites: int | Sequence[str], cohort: str) -> tuple[str, ...]:
    if isinstance(sites, str):
        return (sites,)
    if isinstance(sites, (int, np.integer)):
        _whole("sites", sites, 1)
        return tuple(f"{cohort}-{k + 1}" for k in range(sites))
    names = tuple(str(site) for site in sites)
    if not names or len(set(names)) != len(names):
        raise NerveError(f"sites are {list(names)}, expected a number or different names.")
    return names
