"""Data with nothing in them, or of absurd size, and the same data in other hands: other order, batches and threads."""

import io
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pandas as pd

import nerve
from nerve import Cohort, Parcellation
from nerve._utils.errors import NerveError, NerveWarning
from nerve.evaluation import all_comparisons, make_feature_set, score_table
from nerve.evaluation.cross_validation import predict_permuted_targets
from nerve.evaluation.participants import prepare_participants
from nerve.evaluation.protocol import KERNELS
from nerve.interpret import interpret_to
from nerve.methods import method_class
from nerve.methods.nerve import NERVE
from torture.promise import Promise

N, R = 40, 12
TABLES = ("predictions.tsv", "scores.tsv", "comparisons.tsv")
ONLY_OF_TWO_CLASSES = (
    "auc",
    "auc_low",
    "auc_high",
    "auc_low_cv",
    "auc_high_cv",
    "balanced_accuracy",
)
EMBEDDING, SCORE = 1e-5, 1e-6  # what is promised: relative to the largest embedding, and of r


class Case(NamedTuple):
    """One kind of bad data, what is done with them, and what must be said."""

    label: str
    do: Callable[[Path], str | None]  # what is wrong with the result, or nothing
    says: str = ""  # part of an error or warning that must come; nothing has to be said by default


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Bad data through evaluation, references, NERVE and interpretation, then invariances."""
    kernels, features = (KERNELS[:1], ("raw",)) if short else (KERNELS, ("raw", "pca"))
    cases = [*evaluation_cases(seed, kernels, features), *method_cases(seed, short)]
    began = time.perf_counter()
    outcomes = [judged(case, folder / f"case-{i}") for i, case in enumerate(cases)]
    wrong = [
        f"{case.label}: {said}"
        for case, (kind, said) in zip(cases, outcomes, strict=True)
        if kind == "wrong"
    ]
    counts = {
        kind: sum(found == kind for found, _ in outcomes)
        for kind in ("numbers", "warned", "refused")
    }
    measured = (
        f"{len(cases)} cases in {time.perf_counter() - began:.0f} s: {counts['numbers']} gave numbers, "
        f"{counts['warned']} a warning and {counts['refused']} an error that names participants, site or target"
    )
    silent = Promise(
        "No NaN or infinity reaches a table silently", "; ".join([measured, *wrong]), not wrong
    )
    promises = [silent, batches_promise(seed, short), order_promise(seed)]
    return promises if short else [*promises, threads_promise(seed)]


def judged(case: Case, folder: Path) -> tuple[str, str]:
    """What came of a case: numbers, warned, refused or wrong, and the words for the last."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        try:
            fault = case.do(folder)
        except NerveError as error:
            return (
                ("refused", "")
                if case.says and case.says in str(error)
                else ("wrong", f"says {error}")
            )
        except Exception as error:  # what a user would see as a traceback
            return "wrong", f"{type(error).__name__}: {error}"
    said = [str(one.message) for one in shown if issubclass(one.category, NerveWarning)]
    numeric = sorted(
        {str(one.message) for one in shown if issubclass(one.category, RuntimeWarning)}
    )
    if numeric:
        return "wrong", f"numpy warns: {numeric[0]}"
    if fault and not any(fault in sentence for sentence in said):
        return "wrong", f"{fault} is not a number, and nothing says so"
    if case.says and not any(case.says in sentence for sentence in said):
        return "wrong", f"nothing says {case.says!r}"
    return ("warned", "") if case.says else ("numbers", "")


# ---- what is done with the data


def evaluated(cohort: Cohort, features: Any, targets: Any = ("y",), **options: Any) -> Callable:
    """Everything that `nerve evaluate` computes, looked through for what is not a number."""

    def do(folder: Path) -> str | None:
        few = {"n_folds": 3, "n_permutations": 5} | options
        wanted = list(features) if isinstance(features, tuple) else features
        predictions = nerve.evaluate(wanted, cohort, list(targets), **few).predictions
        people, protocol = prepare_participants(
            cohort, nerve.Protocol(targets=list(targets), **few)
        )
        nulls = []
        for one in wanted if isinstance(wanted, list) else [wanted]:
            feature_set = make_feature_set(one, cohort)
            if feature_set.permutes:
                feature_set.prepare(cohort, people, protocol)
                nulls.append(predict_permuted_targets(feature_set, people, protocol))
        tables = [
            predictions,
            score_table(predictions, 20),
            all_comparisons(predictions, None, 20),
            *nulls,
        ]
        return next((gap for table in tables for gap in gaps(table)), None)

    return do


def gaps(table: pd.DataFrame) -> Iterator[str]:
    """Columns with something that is no number, apart from those that only targets of two classes have."""
    for column in table.select_dtypes("number"):
        if column in ONLY_OF_TWO_CLASSES or column.startswith("variant"):  # names, often empty
            continue
        if (
            column.endswith("stability") and (table["n_seeds"] == 1).all()
        ):  # one seed agrees with nobody, as it says
            continue
        if not np.isfinite(table[column].to_numpy(float)).all():
            yield str(column)


def embedded(name: str, cohort: Cohort) -> Callable:
    """Fit a method, embed, and look through the embeddings and what it reconstructs."""

    def do(folder: Path) -> str | None:
        model = (
            small_nerve()
            if name == "nerve"
            else method_class(name)(**({} if name == "raw" else {"n_components": 8}))
        )
        model.fit(cohort)
        if not np.isfinite(model.transform(cohort)).all():
            return "an embedding"
        if hasattr(model, "reconstruct") and not np.isfinite(model.reconstruct(cohort)).all():
            return "a reconstruction"
        return None

    return do


def interpreted(cohort: Cohort) -> Callable:
    """Every table of `nerve interpret`."""

    def do(folder: Path) -> str | None:
        tables = interpret_to(
            folder, [small_nerve().fit(cohort)], cohort, ["y"], n_folds=4, n_bootstrap=20
        )
        return next((gap for table in tables.values() for gap in gaps(table)), None)

    return do


def small_nerve(**options: Any) -> NERVE:
    """A model that trains in a second."""
    return NERVE.from_preset(
        "small", dim=16, depth=1, epochs=2, batch_size=8, device="cpu", **options
    )


# ---- the data


def connectivity(seed: int, n: int = N) -> np.ndarray:
    """(n, R, R) correlations of noise."""
    rng = np.random.default_rng([seed, 1])
    return np.stack([np.corrcoef(rng.normal(size=(R, 60))) for _ in range(n)]).astype(np.float32)


def cohort_of(fc: np.ndarray, seed: int = 0, **columns: Any) -> Cohort:
    """People sub-000 … with a target y."""
    n = len(fc)
    people = pd.DataFrame({"participant_id": [f"sub-{i:03}" for i in range(n)]})
    people = people.assign(y=np.random.default_rng([seed, 2]).normal(size=n), **columns)
    regions = pd.DataFrame(
        {"label": [f"r{i}" for i in range(R)], "network": list("ABC") * (R // 3)}
    )
    return Cohort(fc, people, Parcellation.from_table(regions, name="twelve"), name="odd")


def odd_connectivity(seed: int) -> dict[str, np.ndarray]:
    """FC with little or nothing in it."""
    signs = np.sign(np.random.default_rng(seed).normal(size=(N, R)))
    odd = {
        "rank one": signs[:, :, None] * signs[:, None, :],
        "float16": connectivity(seed).astype(np.float16),
    }
    odd["twins"] = np.concatenate([connectivity(seed, N // 2)] * 2)
    for name, value in (("a constant region", 0.5), ("an empty region", 0.0)):
        odd[name] = connectivity(seed)
        odd[name][:, 3, :] = odd[name][:, :, 3] = value
    odd |= {
        f"FC × {scale:g}": connectivity(seed) * np.float32(scale) for scale in (1e-30, 1e-10, 1e10)
    }
    return {
        name: fc if fc.dtype == np.float16 else fc.astype(np.float32) for name, fc in odd.items()
    }


def one_changed(seed: int, person: int, value: float) -> np.ndarray:
    """FC in which one person has the same value everywhere."""
    fc = connectivity(seed)
    fc[person] = value
    return fc


def evaluation_cases(seed: int, kernels: tuple[str, ...], sets: tuple[str, ...]) -> Iterator[Case]:
    """Evaluate these feature sets, or those of a case, with every kernel."""
    fc, rng = connectivity(seed), np.random.default_rng([seed, 3])
    y, age, features = rng.normal(size=N), rng.uniform(8, 20, N), rng.normal(size=(N, 6))
    site = np.tile(["A", "B", "C", "D"], N // 4)
    same = np.repeat(connectivity(seed, 1), N, axis=0)
    for kernel in kernels:
        angles = kernel in ("correlation", "cosine")

        def case(label: str, cohort: Cohort, says: str = "", **options: Any) -> Case:
            chosen = {"features": sets, "kernel": kernel} | options  # noqa: B023
            return Case(f"{label}, {kernel}", evaluated(cohort, **chosen), says)  # noqa: B023

        for name, odd in odd_connectivity(seed).items():
            yield case(name, cohort_of(odd))
        yield case("FC × 1e30", cohort_of(fc * np.float32(1e30)))
        yield case(
            "identical participants", cohort_of(same), "have the same FC", features=("raw", "pca")
        )
        yield case(
            "a participant without FC",
            cohort_of(one_changed(seed, 5, 0.0)),
            "sub-005" if angles else "",
        )
        yield case(
            "a participant with missing FC", cohort_of(one_changed(seed, 7, np.nan)), "sub-007"
        )
        for scale, offset in ((1e-8, 0.0), (1e8, 0.0), (1e-8, 1.0), (1.0, 1e8)):
            yield case(
                f"target × {scale:g} + {offset:g}",
                cohort_of(fc, y2=y * scale + offset),
                targets=("y2", "y"),
            )
        for scale in (1e-300, 1e300):
            yield case(
                f"target × {scale:g}",
                cohort_of(fc, y2=y * scale),
                "target 'y2'",
                targets=("y2", "y"),
            )
        yield case(
            "target in its last digits",
            cohort_of(fc, y2=y * 1e-7 + 1e8),
            "y2: its values",
            targets=("y2",),
        )
        yield case("one class", cohort_of(fc, y2=["a"] * N), "target 'y2'", targets=("y2",))
        yield case(
            "a constant target", cohort_of(fc, y2=np.ones(N)), "target 'y2'", targets=("y2",)
        )
        yield case("a class of one", cohort_of(fc, y2=["a"] * (N - 1) + ["b"]), targets=("y2",))
        yield case(
            "an infinite value",
            cohort_of(fc, y2=np.r_[np.inf, y[1:]]),
            "target 'y2'",
            targets=("y2",),
        )
        yield case(
            "fewer participants than folds",
            cohort_of(connectivity(seed, 6)),
            "target 'y': there are values",
            n_folds=10,
        )
        yield case(
            "one participant per fold",
            cohort_of(connectivity(seed, 6)),
            "r_fold_mean of y",
            n_folds=6,
        )
        yield case(
            "collinear covariates",
            cohort_of(fc, age=age, months=12 * age),
            covariates=("age", "months"),
        )
        yield case("a constant covariate", cohort_of(fc, age=np.ones(N)), covariates=("age",))
        yield case("a huge covariate", cohort_of(fc, age=age * 1e200), covariates=("age",))
        yield case("a covariate that is the target", cohort_of(fc, y2=2 * y, c=y), "y2: the covariates explain",
                   targets=("y2",), covariates=("c",))  # fmt: skip
        many = {f"c{i}": rng.normal(size=N) for i in range(N + 5)}
        yield case(
            "more covariates than participants",
            cohort_of(fc, **many),
            "y: the covariates",
            covariates=tuple(many),
        )
        yield case("ComBat", cohort_of(fc, site=site), site="site", combat=True)
        yield case("ComBat, one participant per site", cohort_of(fc, site=[f"S{i}" for i in range(N)]), "site S0",
                   site="site", combat=True)  # fmt: skip
        yield case("ComBat, identical participants", cohort_of(same, site=site), "have the same FC", features=("raw",),
                   site="site", combat=True)  # fmt: skip
        for scale in (1e-200, 1e200):
            yield case(f"features × {scale:g}", cohort_of(fc), features=features * scale)
        flat = np.where(np.arange(6) == 2, 3.0, features)
        yield case("a constant feature", cohort_of(fc), features=flat)
        says = "do not vary" if kernel == "correlation" else "predictions of y are constant"
        yield case("constant features", cohort_of(fc), says, features=np.ones((N, 6)))


def method_cases(seed: int, short: bool) -> Iterator[Case]:
    """PCA, ppca and NERVE, and the interpretation of NERVE."""
    same = np.repeat(connectivity(seed, 1), N, axis=0)
    for name in ("pca", "ppca", "nerve"):
        for label, fc in odd_connectivity(seed).items() if not short or name != "nerve" else []:
            # float32 has no squares of 1e-30, and NERVE's view, which has a diagonal of ones, no logarithm of 1e10
            said = {
                ("ppca", "FC × 1e-30"): "no value of FC",
                ("nerve", "FC × 1e+10"): "not positive definite",
            }
            yield Case(
                f"{label}, {name}", embedded(name, cohort_of(fc)), said.get((name, label), "")
            )
        yield Case(
            f"identical participants, {name}",
            embedded(name, cohort_of(same)),
            "" if name == "nerve" else "is the same",
        )
        missing, huge = (
            cohort_of(one_changed(seed, 7, np.nan)),
            cohort_of(one_changed(seed, 7, 1e20)),
        )
        yield Case(f"missing FC, {name}", embedded(name, missing), "sub-007")
        yield Case(f"FC of 1e20, {name}", embedded(name, huge), "sub-007")
    yield Case(
        "missing FC, raw", embedded("raw", cohort_of(one_changed(seed, 7, np.nan))), "sub-007"
    )
    for label in () if short else ("rank one", "twins", "a constant region"):
        yield Case(
            f"{label}, interpretation",
            interpreted(cohort_of(odd_connectivity(seed)[label])),
            "chance",
        )


# ---- the same data in other hands


def batches_promise(seed: int, short: bool) -> Promise:
    """Embeddings of one model, computed so many participants at a time."""
    cohort = cohort_of(connectivity(seed, 70))
    model, worst = small_nerve(seed=seed).fit(cohort), {}
    for pooling in ("mean",) if short else ("mean", "cls", "tokens", "pca"):
        found = []
        for size in (64, 1, 7):
            with mock.patch.object(type(model), "batch_size_apply", size):
                found.append(model.transform(cohort, pooling))
        worst[pooling] = max(difference(found[0], other) for other in found[1:])
    said = ", ".join(f"{pooling} {value:.0e}" for pooling, value in worst.items())
    return Promise(
        f"Embeddings do not depend on the batch size (1, 7 or 64), to {EMBEDDING:g} of the largest value",
        f"largest difference by pooling: {said}", max(worst.values()) <= EMBEDDING,
    )  # fmt: skip


def order_promise(seed: int) -> Promise:
    """The same people in another order, embedded by one model and evaluated."""
    cohort = cohort_of(connectivity(seed), age=np.random.default_rng(seed).uniform(8, 20, N))
    other = cohort.subset(np.random.default_rng([seed, 4]).permutation(N))
    model = small_nerve(seed=seed).fit(cohort)
    values = [model.transform(one) for one in (cohort, other)]
    places = pd.Index(other.participants["participant_id"]).get_indexer(
        cohort.participants["participant_id"]
    )
    embedding = difference(values[0], values[1][places])
    scores = [scores_of(one, {"raw": "raw", "pca": "pca", "nerve": value}) for one, value in
              zip((cohort, other), values, strict=True)]  # fmt: skip
    score = float(np.abs(scores[0] - scores[1]).max())
    return Promise(
        f"The order of participants does not change embeddings ({EMBEDDING:g}), nor r and its interval ({SCORE:g})",
        f"largest difference: embeddings {embedding:.0e}, scores {score:.0e}",
        embedding <= EMBEDDING and score <= SCORE,
    )


def threads_promise(seed: int) -> Promise:
    """A model trained, embedded and evaluated by one thread and by two, each in a process of its own."""
    code = (
        "import sys; import numpy as np, torch; torch.set_num_threads(int(sys.argv[1]));"
        "from torture.numerical import with_threads; np.save(sys.stdout.buffer, with_threads(int(sys.argv[2])))"
    )
    found = []
    for threads in ("1", "2"):
        limits = dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads
        )
        done = subprocess.run(
            [sys.executable, "-c", code, threads, str(seed)], capture_output=True, env=os.environ | limits,
            cwd=Path(__file__).parents[1],
        )  # fmt: skip
        if done.returncode:
            return Promise("Threads", done.stderr.decode().strip().splitlines()[-1], False)
        found.append(np.load(io.BytesIO(done.stdout), allow_pickle=False))
    split = [np.split(values, [12]) for values in found]
    score = float(np.abs(split[0][0] - split[1][0]).max())
    embedding = difference(split[0][1], split[1][1])
    return Promise(
        f"One thread or two: a small model is trained to the same embeddings ({EMBEDDING:g}) and r ({SCORE:g})",
        f"largest difference: embeddings {embedding:.0e}, scores {score:.0e}",
        embedding <= EMBEDDING and score <= SCORE,
    )


def with_threads(seed: int) -> np.ndarray:
    """Twelve scores, then the embeddings of a model trained here, in one row."""
    warnings.simplefilter("ignore")
    cohort = cohort_of(connectivity(seed))
    model = small_nerve(seed=seed).fit(cohort)
    values = model.transform(cohort)
    return np.concatenate(
        [scores_of(cohort, {"raw": "raw", "pca": "pca", "nerve": values}), values.ravel()]
    )


def scores_of(cohort: Cohort, features: dict[str, Any]) -> np.ndarray:
    """r with its interval and r2 of every feature set, in one row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = score_table(nerve.evaluate(features, cohort, ["y"], n_folds=5).predictions, 100)
    return table[["r", "r_low", "r_high", "r2"]].to_numpy(float).ravel()


def difference(left: np.ndarray, right: np.ndarray) -> float:
    """The largest difference, relative to the largest value."""
    return float(np.abs(left - right).max() / max(np.abs(left).max(), np.finfo(np.float32).tiny))
