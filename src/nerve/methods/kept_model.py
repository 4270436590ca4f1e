"""A model that is kept to predict new participants: encoder, ridge on its features, covariates.

Kernel ridge with an inner-product kernel is linear in the features, ŷ = z · w + b, so the model
holds weights and no data of a participant. In training the covariates are regressed from the
target; in prediction their contribution is added again.

A new cohort may have another atlas (`resampled_to`), another preprocessing or other ages. The
intervals come from out-of-fold errors in the training cohort and hold for participants like those.
There is a warning if the new cohort looks different, and a few labels of it can be used to move the
mean of the predictions (`calibration`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from pydantic import BaseModel, Field, ValidationError
from sklearn.base import clone

import nerve
from nerve._utils.errors import (
    NerveError,
    NerveWarning,
    NotFitted,
    known_columns,
    listed,
    naming_participants,
    problem,
)
from nerve._utils.files import (
    begins_with,
    check_may_write,
    claim,
    read_json,
    read_tsv,
    write_json,
    write_tsv,
)
from nerve._utils.privacy import is_date
from nerve.core.views import check_arrays
from nerve.data.cohort import Cohort
from nerve.data.connectivity import MEASURES, in_words
from nerve.data.quality.likeness import FEWEST, Signature, likeness
from nerve.evaluation.covariates import CovariateRegression, is_numeric, without_rare_levels
from nerve.evaluation.cross_validation import group_targets, remove_covariates
from nerve.evaluation.feature_sets import ridge_of
from nerve.evaluation.folds import strata_of, stratified_folds
from nerve.evaluation.kernels import correlation_rows, cosine_rows
from nerve.evaluation.participants import prepare_participants
from nerve.evaluation.protocol import Protocol
from nerve.methods.configuration import CLOSED
from nerve.methods.run_folder import load_tensors, save_tensors
from nerve.methods.runs import resampled_to

FORMAT = 3
ABOUT = "probe.json"
WEIGHTS = "probe.safetensors"
_ENCODER = "encoder"
_COLUMNS = ("participant_id", "target", "predicted")  # with which a table of predictions begins
# kernel → features whose inner product it is
_ROWS_OF_KERNEL = {
    "correlation": correlation_rows,
    "cosine": cosine_rows,
    "linear": lambda features: features,
}

# share of participants like those of the training cohort that an interval covers
_COVERED = 0.9
# folds that give the out-of-fold errors of the training participants
_ERROR_FOLDS = 10
# labels that a calibration needs, and labels from which it computes the interval again
_FEWEST_LABELS = 5
_FEWEST_FOR_INTERVAL = 30
# share of the training participants below the range of a column, and above it
_OUTSIDE_RANGE = 0.025
# share of new participants outside the range from which there is a warning
_MANY_OUTSIDE = 0.1
# standard deviations from the mean from which a number may be a code for a missing value
_FAR = 10


class _Numbers(NamedTuple):
    """Mean and standard deviation of a numeric covariate in the training cohort."""

    mean: float
    spread: float


class _Regression(BaseModel):
    """What `CovariateRegression.as_dict` gives."""

    model_config = CLOSED

    categories: dict[str, list[str] | None]
    means: list[float]
    scale: list[float]
    intercept: list[float]
    coefficients: list[list[float]]


class _FittedOn(BaseModel):
    """The training cohort."""

    model_config = CLOSED

    cohort: str
    n: int
    fingerprint: str
    measure: Literal[tuple(MEASURES)]  # type: ignore[valid-type]


class _About(BaseModel):
    """Every field of a probe.json."""

    model_config = CLOSED

    format: int
    nerve_version: str
    kernel: Literal[tuple(_ROWS_OF_KERNEL)]  # type: ignore[valid-type]
    targets: list[str]
    classes: dict[str, Annotated[list[str], Field(min_length=2, max_length=2)]]
    class_columns: dict[str, str]
    means: list[float]
    half_widths: list[float | None]
    ranges: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]]
    signature: dict[str, float] | None
    covariates: list[str]
    regressions: list[_Regression | None]
    fitted_on: _FittedOn
    protocol: dict[str, Any]  # `Protocol` checks it


class KeptModel:
    """An encoder and a ridge on its features, fitted on one cohort to predict others.

    Parameters
    ----------
    encoder : method
        With `transform(cohort)`. A fitted one stays as it is; another is fitted on the cohort.
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
    ['participant_id', 'target', 'predicted', 'low', 'high']
    """

    about_: dict[str, Any]  # what probe.json holds
    signature_: Signature | None = None  # of the training cohort, where it had ten participants
    weights_: np.ndarray  # (d, T)
    biases_: np.ndarray  # (T,)

    def __init__(self, encoder: Any, protocol: Protocol) -> None:
        self.encoder = encoder
        self.protocol = protocol

    def fit(self, cohort: Cohort) -> Self:
        """Fit each target on all participants who have it; λ is chosen by inner folds.

        Parameters
        ----------
        cohort : Cohort

        Returns
        -------
        KeptModel
        """
        self.check()
        participants, protocol = prepare_participants(cohort, self.protocol)
        _check_classes(participants.classes)
        self.encoder_ = self.encoder
        if not hasattr(self.encoder, "parcellation_"):
            self.encoder_ = clone(self.encoder).fit(cohort)
        features = self._features(cohort)  # (n, d)
        covariates = without_rare_levels(participants.covariates)
        observed = participants.targets.to_numpy(float)  # (n, T)
        names = [str(name) for name in participants.targets]
        columns = [participants.class_columns.get(name, name) for name in names]

        # regress the covariates from each target, on the participants who have it
        rows_of = []
        residuals = np.empty(observed.shape)
        regressions = []
        for k, column in enumerate(columns):
            has_target = np.isfinite(observed[participants.order, k])
            rows = participants.order[has_target]
            residuals[:, k], regression = remove_covariates(
                observed[:, k], column, rows, rows[:0], covariates
            )
            rows_of.append(rows)
            regressions.append(regression)

        # fit one ridge for all targets that the same participants have
        self.weights_ = np.empty((features.shape[1], len(names)))
        self.biases_ = np.empty(len(names))
        half_widths: list[float | None] = [None] * len(names)
        for targets in group_targets(observed, columns):
            rows = rows_of[targets[0]]
            strata = np.column_stack([strata_of(observed[rows, k], 5) for k in targets])
            groups = None
            if participants.inner_groups is not None:
                groups = participants.inner_groups[rows]
            with naming_participants(participants.ids[rows]):
                ridge = ridge_of(protocol).fit(
                    features[rows],
                    residuals[np.ix_(rows, targets)],
                    groups=groups,
                    strata=strata,
                )
            weights, biases = ridge.linear_weights()
            self.weights_[:, targets] = weights
            self.biases_[targets] = biases
            errors = _errors_out_of_fold(
                features[rows], residuals[np.ix_(rows, targets)], strata, groups, protocol
            )
            for place, k in enumerate(targets):
                if names[k] not in participants.classes:
                    half_widths[k] = _half_width(errors[:, place])

        cohort.check_unchanged()
        aligned = cohort.align(self.encoder_.parcellation_)
        self.signature_ = Signature.of(aligned)
        self.about_ = {
            "format": FORMAT,
            "nerve_version": nerve.__version__,
            "kernel": protocol.kernel,
            "targets": names,
            "classes": {name: list(pair) for name, pair in participants.classes.items()},
            "class_columns": participants.class_columns,
            "means": [float(residuals[rows, k].mean()) for k, rows in enumerate(rows_of)],
            "half_widths": half_widths,
            "ranges": _ranges(cohort, [name for name in names if name not in participants.classes]),
            "signature": None if self.signature_ is None else self.signature_.numbers(),
            "covariates": list(protocol.covariates),
            "regressions": [
                None if regression is None else regression.as_dict() for regression in regressions
            ],
            "fitted_on": {
                "cohort": cohort.name,
                "n": len(cohort),
                "fingerprint": cohort.fingerprint,
                "measure": cohort.measure,
            },
            "protocol": protocol.as_dict(),
        }
        return self

    def predict(self, cohort: Cohort, calibration: pd.DataFrame | None = None) -> pd.DataFrame:
        """Predict participants. They need the covariates but not the targets.

        Parameters
        ----------
        cohort : Cohort
        calibration : DataFrame, optional
            participant_id and targets of some of these participants. All predictions are moved by
            the mean error of theirs, so that the mean fits the new cohort.

        Returns
        -------
        DataFrame
            One row per participant and target, with the columns

            - participant_id, target, predicted (in the units of the target);
            - low and high, of numeric targets: an interval that covers nine of ten participants of
              the training cohort out of fold, or of `calibration` if that has thirty;
            - calibrated_on, with a calibration: whether the label of the participant was used;
            - beyond_covariates, with covariates: the prediction less their contribution;
            - class, of targets with two classes: the more likely one.

            A column of three or more classes gives one target per class, and one more row per
            participant that names the most likely class.
        """
        if not hasattr(self, "about_"):
            raise NotFitted(
                "This KeptModel is not fitted. Call fit(cohort) first, or load a saved one."
            )
        about = self.about_
        measure = about["fitted_on"]["measure"]
        if cohort.measure != measure:
            raise problem(
                f"Cohort {cohort.name!r}",
                f"it holds {in_words(cohort.measure)}",
                expected=f"{in_words(measure)}, as the model was fitted on",
                remedy="Ingest it again; for Fisher z, with --values z.",
            )
        ids = cohort.participants["participant_id"].to_numpy(object)
        self._warn_of_differences(cohort)
        covariates = self._covariates(cohort)
        rows_of_kernel = _ROWS_OF_KERNEL[about["kernel"]]
        with naming_participants(ids):
            rows = rows_of_kernel(self._features(cohort))  # (n, d)
        beyond = rows @ self.weights_ + self.biases_  # (n, T): without covariates
        parts = []
        for k, name in enumerate(about["targets"]):
            predicted = beyond[:, k]
            regression = about["regressions"][k]
            if regression is not None:
                expected = CovariateRegression.from_dict(regression).predict(covariates)[:, 0]
                predicted = predicted + expected
            half_width = about["half_widths"][k]
            labelled = np.zeros(len(ids), bool)
            if calibration is not None:
                labels = self._calibration_labels(calibration, name, ids)
                labelled = np.isfinite(labels)
                errors = labels[labelled] - predicted[labelled]
                predicted = predicted + errors.mean()
                beyond[:, k] += errors.mean()
                if half_width is not None and len(errors) >= _FEWEST_FOR_INTERVAL:
                    half_width = _half_width(errors - errors.mean())
            part = {"participant_id": ids, "target": name, "predicted": predicted}
            if half_width is not None:
                part["low"] = predicted - half_width
                part["high"] = predicted + half_width
            if calibration is not None:
                part["calibrated_on"] = labelled
            if about["covariates"]:
                part["beyond_covariates"] = beyond[:, k]
            if name in about["classes"]:
                classes = np.array(about["classes"][name], object)
                is_second = beyond[:, k] > about["means"][k]
                part["class"] = classes[is_second.astype(int)]
            parts.append(pd.DataFrame(part))
        parts += self._named_classes(ids, beyond)
        return pd.concat(parts, ignore_index=True)

    def _calibration_labels(self, table: pd.DataFrame, name: str, ids: np.ndarray) -> np.ndarray:
        """(n,): labels of a target in the calibration table, NaN for participants without one."""
        where = "--calibrate"
        column = self.about_["class_columns"].get(name, name)
        known_columns(["participant_id", column], table.columns, where)
        table_ids = table["participant_id"].astype(str)
        if table_ids.duplicated().any():
            raise problem(where, "a participant occurs twice", expected="one row per participant")
        values = table[column].where(table[column].notna(), None)
        if name in self.about_["classes"]:
            first, second = self.about_["classes"][name]
            words = values.map(str, na_action="ignore")
            unknown = words.dropna()[~words.dropna().isin([first, second])]
            if name == column and len(unknown):
                raise problem(
                    where,
                    f"{column!r} holds {listed(unknown.unique(), most=3)}",
                    expected=f"the classes of the model, {first} and {second}",
                )
            values = (words == second).astype(float).where(words.notna())
        numbers = pd.to_numeric(values, errors="coerce").to_numpy(float)
        labels = pd.Series(numbers, index=table_ids).reindex(ids).to_numpy(float)
        n_labels = int(np.isfinite(labels).sum())
        if n_labels < _FEWEST_LABELS:
            raise problem(
                where,
                f"{n_labels} participants of the cohort have a value of {column!r}",
                expected=f"at least {_FEWEST_LABELS}: the mean error of fewer is too uncertain",
            )
        return labels

    def _warn_of_differences(self, cohort: Cohort) -> None:
        """Warn if FC, or the range of a column, differs from that of the training cohort."""
        if self.signature_ is not None:
            aligned = cohort.align(self.encoder_.parcellation_)
            for difference in likeness(self.signature_, aligned).differences:
                warnings.warn(
                    f"Cohort {cohort.name!r} does not look like what the model was fitted on. "
                    f"{difference}",
                    NerveWarning,
                    stacklevel=3,
                )
        for name, (low, high) in self.about_["ranges"].items():
            if name not in cohort.participants:
                continue
            numbers = pd.to_numeric(cohort.participants[name], errors="coerce").dropna()
            outside = float(((numbers < low) | (numbers > high)).mean()) if len(numbers) else 0.0
            if outside > _MANY_OUTSIDE:
                warnings.warn(
                    f"{outside:.0%} of the participants of {cohort.name!r} have {name!r} outside "
                    f"{low:g} to {high:g}, the range of {1 - 2 * _OUTSIDE_RANGE:.0%} of the "
                    "training participants: the model has not learned from such participants, and "
                    "its intervals do not hold for them.",
                    NerveWarning,
                    stacklevel=3,
                )

    def _named_classes(self, ids: np.ndarray, beyond: np.ndarray) -> list[pd.DataFrame]:
        """The most likely class of each participant, for columns of three or more classes."""
        about = self.about_
        means = np.array(about["means"])
        parts = []
        for column in dict.fromkeys(about["class_columns"].values()):
            names = [
                name for name in about["targets"] if about["class_columns"].get(name) == column
            ]
            places = [about["targets"].index(name) for name in names]
            labels = np.array([about["classes"][name][1] for name in names], object)
            highest = (beyond[:, places] - means[places]).argmax(axis=1)
            part = {"participant_id": ids, "target": column, "class": labels[highest]}
            parts.append(pd.DataFrame(part))
        return parts

    def check(self) -> None:
        """Refuse a protocol that would need data of the training participants to predict."""
        wrong = [name for name in ("combat", "regress_features") if getattr(self.protocol, name)]
        if self.protocol.kernel not in _ROWS_OF_KERNEL:
            wrong.append(f"kernel {self.protocol.kernel}")
        if wrong:
            raise NerveError(
                f"A kept model cannot have {listed(wrong)}, expected kernel "
                f"{listed(_ROWS_OF_KERNEL)}, without combat and regress_features: the others need "
                "data of the training participants, which are not kept."
            )

    def _features(self, cohort: Cohort) -> np.ndarray:
        """(n, d): features, or all tokens side by side."""
        features = np.asarray(self.encoder_.transform(cohort), float)
        return features.reshape(len(features), -1)

    def _covariates(self, cohort: Cohort) -> pd.DataFrame:
        """The covariates of new participants, checked against those of `fit`.

        A covariate that is missing altogether or has another type is refused. There is a warning
        with the number of participants for values that are missing, unknown, or far from the mean.
        """
        names = self.about_["covariates"]
        where = f"participants of {cohort.name!r}"
        known_columns(names, cohort.participants.columns, where)
        table = cohort.participants[names].copy()
        site = self.about_["protocol"]["site"]
        if site in names:
            table[site] = table[site].astype(str).where(table[site].notna())
        for name, known in self._known_values().items():
            values = table[name]
            n_present = int(values.notna().sum())
            if n_present == 0:
                raise problem(
                    where,
                    f"covariate {name!r} is missing in every row",
                    expected="the values that the model was fitted with",
                )
            if is_numeric(values) != isinstance(known, _Numbers):
                expected = "numbers"
                if not isinstance(known, _Numbers):
                    expected = f"categories ({listed(known, most=4)})"
                raise problem(
                    where,
                    f"{name!r} holds other values",
                    expected=f"{expected}, as the model was fitted on",
                )
            if isinstance(known, _Numbers):
                self._warn_of_codes(where, name, values, known)
                continue
            words = values.dropna().astype(str)
            unknown = words[~words.isin(known)]
            if len(unknown):
                # not refused: predicting participants of a new site is a common use
                warnings.warn(
                    f"{len(unknown)} of {len(table)} {where} have a value of {name!r} that the "
                    f"model does not know ({listed(unknown.unique(), most=4)}; it knows "
                    f"{listed(known, most=4)}). For them it counts as missing, as the average of "
                    "the model's cohort.",
                    NerveWarning,
                    stacklevel=3,
                )
        n_missing = {name: int(table[name].isna().sum()) for name in table}
        counts = [f"{name} in {n}" for name, n in n_missing.items() if n]
        if counts:
            warnings.warn(
                f"Covariates are missing for some of {len(table)} {where} ({listed(counts)}). "
                "They count as the average of the model's cohort.",
                NerveWarning,
                stacklevel=3,
            )
        return table

    def _known_values(self) -> dict[str, _Numbers | list[str]]:
        """Covariate → its categories, or mean and spread of its numbers, in the training cohort."""
        known: dict[str, _Numbers | list[str]] = {}
        for regression in self.about_["regressions"]:
            if regression is None:
                continue
            column = 0  # of the design matrix
            for name, categories in regression["categories"].items():
                if categories is None:
                    known[name] = _Numbers(regression["means"][column], regression["scale"][column])
                    column += 1
                else:
                    known[name] = categories
                    column += len(categories)
        return {name: value for name, value in known.items() if name in self.about_["covariates"]}

    @staticmethod
    def _warn_of_codes(where: str, name: str, values: pd.Series, known: _Numbers) -> None:
        """Warn of numbers so far from the mean that they may be codes for missing values."""
        numbers = values.to_numpy(float, na_value=np.nan)
        far = np.abs(numbers - known.mean) > _FAR * known.spread
        if far.any():
            examples = listed([f"{number:g}" for number in np.unique(numbers[far])], most=3)
            warnings.warn(
                f"Covariate {name!r} of {int(far.sum())} {where} is more than {_FAR} standard "
                f"deviations from the mean that the model was fitted with ({examples}). It is used "
                "as a number: if it is a code for a missing value, make the cohort again with "
                "--na-values.",
                NerveWarning,
                stacklevel=4,
            )

    # Files

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write probe.json, probe.safetensors and the encoder, without participant ids.

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
        self.encoder_.save(claim(folder) / _ENCODER)
        arrays = {"weights": self.weights_, "biases": self.biases_}
        if self.signature_ is not None:
            arrays["signature"] = self.signature_.mean
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        save_tensors(folder / WEIGHTS, tensors)
        write_json(folder / ABOUT, self.about_)  # last: a folder that holds it is complete
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
        content = read_json(folder / ABOUT)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise problem(
                folder / ABOUT,
                f"it is not of format {FORMAT}",
                remedy="Fit the model with this version.",
            )
        try:
            about = _About(**content).model_dump()
            n_targets = len(about["targets"])
            lengths = {len(about[name]) for name in ("means", "regressions", "half_widths")}
            if lengths != {n_targets}:
                raise ValueError(f"means and regressions that are not of {n_targets} targets")
            for regression in about["regressions"]:
                if regression is not None:
                    CovariateRegression.from_dict(regression)
            protocol = Protocol(**about["protocol"])
        except NerveError:
            raise
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            entry = ".".join(str(part) for part in first["loc"][:3])
            raise problem(
                folder / ABOUT, f"its entry {entry} is not one of a kept model ({first['msg']})"
            ) from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise problem(folder, f"it is incomplete or has an unknown entry ({error})") from error
        model = cls(load_method(folder / _ENCODER, device=device), protocol)
        arrays = load_tensors(folder / WEIGHTS)
        shapes: dict[str, tuple[int | None, ...]] = {
            "weights": (model.encoder.n_features, n_targets),
            "biases": (n_targets,),
        }
        if about["signature"] is not None:
            n_regions = model.encoder.parcellation_.n_regions
            shapes["signature"] = (n_regions * (n_regions - 1) // 2,)
        check_arrays(arrays, shapes, folder / WEIGHTS)
        model.encoder_ = model.encoder
        model.about_ = about
        model.weights_ = arrays["weights"].numpy()
        model.biases_ = arrays["biases"].numpy()
        if about["signature"] is not None:
            model.signature_ = Signature.saved(
                arrays["signature"].numpy(), about["signature"], folder / ABOUT
            )
        return model


def predict_file(
    model: str | os.PathLike[str],
    cohort: str | os.PathLike[str],
    out: str | os.PathLike[str],
    device: str = "auto",
    *,
    overwrite: bool = False,
    resample: bool = False,
    calibrate: str | os.PathLike[str] | None = None,
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
    overwrite : bool
        Replace an existing table of predictions.
    resample : bool
        Resample a cohort of other regions to those of the model. Without it, it is refused.
    calibrate : path, optional
        A table with participant_id and targets of some participants: see `KeptModel.predict`.

    Returns
    -------
    DataFrame
        What `KeptModel.predict` gives.
    """
    path = Path(out)
    if path.suffix.lower() != ".tsv":
        raise problem(path, f"its ending is {path.suffix!r}", expected=".tsv")
    check_may_write(path, overwrite=overwrite, is_ours=begins_with(*_COLUMNS))
    new_cohort = Cohort.load(cohort)
    kept = KeptModel.load(model, device=device)
    if resample:
        new_cohort = resampled_to(kept.encoder_, new_cohort)
    calibration = None
    if calibrate is not None:
        calibration = read_tsv(calibrate, dtype={"participant_id": str})
    table = kept.predict(new_cohort, calibration)
    new_cohort.check_unchanged()
    write_tsv(path, table)
    return table


def free_folder(path: str | os.PathLike[str]) -> Path:
    """The folder for a kept model; one that holds a kept model already is refused."""
    folder = Path(path)
    if (folder / ABOUT).exists():
        raise problem(
            folder,
            "it already holds a kept model, which is not replaced",
            remedy="Choose another folder.",
        )
    return folder


def _errors_out_of_fold(
    features: np.ndarray, targets: np.ndarray, strata: np.ndarray, groups: Any, protocol: Protocol
) -> np.ndarray:
    """(n, T): observed less predicted, by a ridge fitted on the other folds."""
    n_folds = min(_ERROR_FOLDS, len(features))
    folds = stratified_folds(
        strata, n_folds, groups=groups, seed=protocol.seed, groups_may_exceed_folds=True
    )
    errors = np.empty(targets.shape)
    for fold in np.unique(folds):
        train = np.flatnonzero(folds != fold)
        test = np.flatnonzero(folds == fold)
        ridge = ridge_of(protocol).fit(
            features[train],
            targets[train],
            groups=None if groups is None else groups[train],
            strata=strata[train],
        )
        predicted = np.asarray(ridge.predict(features[test])).reshape(len(test), -1)
        errors[test] = targets[test] - predicted
    return errors


def _half_width(errors: np.ndarray) -> float:
    """Half the width of an interval that covers a new participant with probability `_COVERED`.

    It is the ⌈(n + 1) · 0.9⌉-th smallest of n absolute errors: n + 1 counts the new participant.
    Of thirty errors it is the 28th, not the 27th.
    """
    n = len(errors)
    share = min(1.0, np.ceil((n + 1) * _COVERED) / n)
    return float(np.quantile(np.abs(errors), share, method="inverted_cdf"))


def _ranges(cohort: Cohort, targets: list[str]) -> dict[str, list[float]]:
    """The range of nearly all training participants, for numeric targets and age.

    Quantiles, because the smallest and the largest value would each reveal one participant.
    """
    ranges: dict[str, list[float]] = {}
    for name in dict.fromkeys([*targets, "age"]):
        if name in cohort.participants:
            numbers = pd.to_numeric(cohort.participants[name], errors="coerce").dropna()
            if len(numbers) >= FEWEST:
                low, high = numbers.quantile([_OUTSIDE_RANGE, 1 - _OUTSIDE_RANGE])
                ranges[name] = [float(low), float(high)]
    return ranges


def _check_classes(classes: Mapping[str, tuple[str, str]]) -> None:
    """Refuse classes whose names are dates, which may identify participants."""
    for target, pair in classes.items():
        if any(is_date(label) for label in pair):
            raise problem(
                f"target {target!r}",
                "its classes are dates",
                expected="names that may be passed on",
            )
