"""A model that is kept to predict new participants: encoder, ridge on its features, covariates.

Kernel ridge with an inner-product kernel is linear in its rows, ŷ = z · w + b, so that the model
holds weights and no participant. What was removed with the covariates is added again for each new
participant.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

import nerve
from nerve._utils.errors import (
    NerveError,
    NotFitted,
    known_columns,
    listed,
    naming_participants,
    problem,
)
from nerve._utils.files import (
    begins_with,
    check_replaceable_file,
    claim,
    read_json,
    write_json,
    write_tsv,
)
from nerve._utils.privacy import is_date
from nerve.data.cohort import Cohort
from nerve.evaluation.covariates import CovariateRegression, is_numeric, without_rare_levels
from nerve.evaluation.cross_validation import group_targets, remove_covariates
from nerve.evaluation.feature_sets import ridge_of
from nerve.evaluation.folds import strata_of
from nerve.evaluation.kernels import correlation_rows, cosine_rows
from nerve.evaluation.participants import prepare_participants
from nerve.evaluation.protocol import Protocol
from nerve.methods.run_folder import load_tensors, save_tensors

FORMAT = 1
ABOUT = "probe.json"
WEIGHTS = "probe.safetensors"
ENCODER = "encoder"
COLUMNS = ("participant_id", "target", "predicted")
_ROWS = {
    "correlation": correlation_rows,
    "cosine": cosine_rows,
    "linear": lambda features: features,
}


class KeptModel:
    """Features and the ridge that reads them, fitted on one cohort.

    Parameters
    ----------
    encoder : method
        With `transform(cohort)`: a trained one stays as it is, another is fitted on the cohort.
    protocol : Protocol
        Targets, covariates, kernel, λ. ComBat, regression of features and the kernel rbf are
        refused.

    Examples
    --------
    >>> import nerve
    >>> from nerve.methods.tangent import TangentSpace
    >>> cohort = nerve.simulate_cohort(40, parcellation="schaefer100-17", timepoints=100)
    >>> protocol = nerve.Protocol(targets="age", motion="none")
    >>> model = KeptModel(TangentSpace(), protocol).fit(cohort)
    >>> list(model.predict(cohort.subset([0, 1])).columns)
    ['participant_id', 'target', 'predicted']
    """

    about_: dict[str, Any]  # what probe.json holds
    weights_: np.ndarray  # (d, T)
    biases_: np.ndarray  # (T,)

    def __init__(self, encoder: Any, protocol: Protocol) -> None:
        self.encoder = encoder
        self.protocol = protocol

    def fit(self, cohort: Cohort) -> Self:
        """Learn from every participant who has the target; λ is chosen by inner folds.

        Parameters
        ----------
        cohort : Cohort

        Returns
        -------
        KeptModel
        """
        self.check()
        people, protocol = prepare_participants(cohort, self.protocol)
        _check_classes(people.classes)
        self.encoder_ = self.encoder
        if not hasattr(self.encoder, "parcellation_"):
            self.encoder_ = clone(self.encoder).fit(cohort)
        features = self._features(cohort)  # (n, d)
        covariates = without_rare_levels(people.covariates)
        observed = people.targets.to_numpy(float)  # (n, T)
        names = [str(name) for name in people.targets]
        columns = [people.class_columns.get(name, name) for name in names]

        # each target without its covariates, among those who have it
        rows_of = []
        residuals = np.empty(observed.shape)
        regressions = []
        for k, column in enumerate(columns):
            has_target = np.isfinite(observed[people.order, k])
            rows = people.order[has_target]
            residuals[:, k], regression = remove_covariates(
                observed[:, k], column, rows, rows[:0], covariates
            )
            rows_of.append(rows)
            regressions.append(regression)

        # one ridge for all targets that the same participants have
        self.weights_ = np.empty((features.shape[1], len(names)))
        self.biases_ = np.empty(len(names))
        for targets in group_targets(observed, columns):
            rows = rows_of[targets[0]]
            strata = np.column_stack([strata_of(observed[rows, k], 5) for k in targets])
            groups = None if people.inner_groups is None else people.inner_groups[rows]
            with naming_participants(people.ids[rows]):
                ridge = ridge_of(protocol).fit(
                    features[rows],
                    residuals[np.ix_(rows, targets)],
                    groups=groups,
                    strata=strata,
                )
            weights, biases = ridge.linear()
            self.weights_[:, targets] = weights
            self.biases_[targets] = biases

        cohort.check_unchanged()
        self.about_ = {
            "format": FORMAT,
            "nerve_version": nerve.__version__,
            "kernel": protocol.kernel,
            "targets": names,
            "classes": {name: list(pair) for name, pair in people.classes.items()},
            "whole": people.class_columns,
            "means": [float(residuals[rows, k].mean()) for k, rows in enumerate(rows_of)],
            "covariates": list(protocol.covariates),
            "regressions": [None if one is None else one.as_dict() for one in regressions],
            "fitted_on": {
                "cohort": cohort.name,
                "n": len(cohort),
                "fingerprint": cohort.fingerprint,
            },
            "protocol": protocol.as_dict(),
        }
        return self

    def predict(self, cohort: Cohort) -> pd.DataFrame:
        """Predict participants, who need the covariates but not the targets.

        Parameters
        ----------
        cohort : Cohort

        Returns
        -------
        DataFrame
            One row per participant and target. participant_id, target, predicted (in the units of
            the target); beyond_covariates, its part that is not what the covariates say, where
            there are any; class, the more likely one, where the target has classes. Of a column of
            three or more classes there is a row for each, and one that names the class.
        """
        if not hasattr(self, "about_"):
            raise NotFitted(
                "This KeptModel is not fitted. Call fit(cohort) first, or load a saved one."
            )
        about = self.about_
        ids = cohort.participants["participant_id"].to_numpy(object)
        covariates = self._covariates(cohort)
        rows_of_kernel = _ROWS[about["kernel"]]
        with naming_participants(ids):
            beyond = rows_of_kernel(self._features(cohort)) @ self.weights_ + self.biases_  # (n, T)
        parts = []
        for k, name in enumerate(about["targets"]):
            predicted = beyond[:, k]
            regression = about["regressions"][k]
            if regression is not None:
                expected = CovariateRegression.from_dict(regression).predict(covariates)[:, 0]
                predicted = predicted + expected
            part = {"participant_id": ids, "target": name, "predicted": predicted}
            if about["covariates"]:
                part["beyond_covariates"] = beyond[:, k]
            if name in about["classes"]:
                classes = np.array(about["classes"][name], object)
                is_second = beyond[:, k] > about["means"][k]
                part["class"] = classes[is_second.astype(int)]
            parts.append(pd.DataFrame(part))
        parts += self._named_classes(ids, beyond)
        return pd.concat(parts, ignore_index=True)

    def _named_classes(self, ids: np.ndarray, beyond: np.ndarray) -> list[pd.DataFrame]:
        """The class of each participant, for columns of three or more classes."""
        about = self.about_
        means = np.array(about["means"])
        parts = []
        for column in dict.fromkeys(about["whole"].values()):
            names = [name for name in about["targets"] if about["whole"].get(name) == column]
            places = [about["targets"].index(name) for name in names]
            labels = np.array([about["classes"][name][1] for name in names], object)
            highest = (beyond[:, places] - means[places]).argmax(axis=1)
            part = {"participant_id": ids, "target": column, "class": labels[highest]}
            parts.append(pd.DataFrame(part))
        return parts

    def check(self) -> None:
        """Refuse a protocol of which not everything can be kept."""
        wrong = [name for name in ("combat", "regress_features") if getattr(self.protocol, name)]
        if wrong or self.protocol.kernel not in _ROWS:
            unknown = listed(wrong) or f"kernel {self.protocol.kernel}"
            raise NerveError(
                f"A model that is kept knows no {unknown}, expected kernel {listed(_ROWS)} and "
                "features as they are: what it would need of its participants is not kept."
            )

    def _features(self, cohort: Cohort) -> np.ndarray:
        features = np.asarray(self.encoder_.transform(cohort), float)
        return features.reshape(len(features), -1)

    def _covariates(self, cohort: Cohort) -> pd.DataFrame:
        """The covariates of new participants, if all are there and numbers are numbers."""
        names = self.about_["covariates"]
        where = f"participants of {cohort.name!r}"
        known_columns(names, cohort.participants.columns, where)
        table = cohort.participants[names].copy()
        site = self.about_["protocol"]["site"]
        if site in names:
            table[site] = table[site].astype(str).where(table[site].notna())
        categories_of: dict[str, Any] = {}  # None for numbers
        for regression in self.about_["regressions"]:
            if regression is not None:
                categories_of |= regression["categories"]
        for name, categories in categories_of.items():
            if name in names and is_numeric(table[name]) != (categories is None):
                expected = "numbers"
                if categories is not None:
                    expected = f"categories ({listed(categories, most=4)})"
                raise problem(
                    where,
                    f"{name!r} holds other values",
                    expected=f"{expected}, as the model was fitted on",
                )
        return table

    # Files

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write probe.json, probe.safetensors and the encoder; no participant is named.

        Parameters
        ----------
        path : path
            A folder that holds no kept model yet.

        Returns
        -------
        Path
        """
        if not hasattr(self, "about_"):
            raise NotFitted(
                "This KeptModel is not fitted: there is nothing to save. Call fit first."
            )
        folder = free_folder(path)
        self.encoder_.save(claim(folder) / ENCODER)
        arrays = {"weights": self.weights_, "biases": self.biases_}
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        save_tensors(folder / WEIGHTS, tensors)
        write_json(folder / ABOUT, self.about_)  # last: a folder with it is complete
        return folder

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str = "auto") -> Self:
        """Read what `save` wrote; nothing in it is executed.

        Parameters
        ----------
        path : path
            The folder.
        device : str
            Where the encoder computes.

        Returns
        -------
        KeptModel
        """
        from nerve.methods import load_method

        folder = Path(path)
        if not (folder / ABOUT).is_file():
            lacking = f"it holds no {ABOUT}" if folder.is_dir() else "there is no such folder"
            remedy = "`nerve evaluate … --save-model FOLDER` writes one."
            raise problem(folder, lacking, expected="the folder of a kept model", remedy=remedy)
        about = read_json(folder / ABOUT)
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise problem(
                folder / ABOUT,
                f"it is not of format {FORMAT}",
                remedy="Fit the model with this version.",
            )
        arrays = {name: tensor.numpy() for name, tensor in load_tensors(folder / WEIGHTS).items()}
        try:
            model = cls(load_method(folder / ENCODER, device=device), Protocol(**about["protocol"]))
            model.encoder_ = model.encoder
            model.about_ = about
            model.weights_ = arrays["weights"]
            model.biases_ = arrays["biases"]
            n_targets = len(about["targets"])
            lengths = {len(about["means"]), len(about["regressions"]), len(model.biases_)}
            if lengths != {n_targets} or model.weights_.shape[1] != n_targets:
                raise ValueError(f"weights of shape {model.weights_.shape} for {n_targets} targets")
            if about["kernel"] not in _ROWS:
                raise ValueError(f"kernel {about['kernel']}")
            for regression in about["regressions"]:
                if regression is not None:
                    CovariateRegression.from_dict(regression)
        except NerveError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise problem(folder, f"it is incomplete or has an unknown entry ({error})") from error
        return model


def _check_classes(classes: Mapping[str, tuple[str, str]]) -> None:
    """Refuse to keep names of classes that are dates."""
    for target, pair in classes.items():
        if any(is_date(label) for label in pair):
            raise problem(
                f"target {target!r}",
                "its classes are dates",
                expected="names that may be passed on",
            )


def free_folder(path: str | os.PathLike[str]) -> Path:
    """The folder, if no kept model is in it yet."""
    folder = Path(path)
    if (folder / ABOUT).exists():
        raise problem(
            folder,
            "it already holds a kept model, which is not replaced",
            remedy="Choose another folder.",
        )
    return folder


def predict_file(
    model: str | os.PathLike[str],
    cohort: str | os.PathLike[str],
    out: str | os.PathLike[str],
    device: str = "auto",
) -> pd.DataFrame:
    """Predict the participants of a cohort folder and write the table.

    Parameters
    ----------
    model : path
        The folder of a kept model.
    cohort : path
        The folder of a cohort.
    out : path
        The .tsv to write.
    device : str
        Where the encoder computes.

    Returns
    -------
    DataFrame
        What `KeptModel.predict` gives.
    """
    path = Path(out)
    if path.suffix.lower() != ".tsv":
        raise problem(path, f"its ending is {path.suffix!r}", expected=".tsv")
    check_replaceable_file(path, begins_with(*COLUMNS))
    people = Cohort.load(cohort)
    table = KeptModel.load(model, device=device).predict(people)
    people.check_unchanged()
    write_tsv(path, table)
    return table
