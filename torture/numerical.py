"""Extreme data, and invariances: no NaN reaches a table silently, and order, batches and threads
of the same data do not matter.
"""

import io
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
from torture.promise import Promise, with_troubles

N = 40  # participants
R = 12  # regions
ONLY_OF_TWO_CLASSES = (
    "auc",
    "auc_low",
    "auc_high",
    "auc_low_cv",
    "auc_high_cv",
    "balanced_accuracy",
)
# What is promised: a difference relative to the largest embedding, and one of r.
EMBEDDING = 1e-5
SCORE = 1e-6


class Case(NamedTuple):
    """One sort of bad data, the computation on them, and the message that is expected."""

    label: str
    compute: Callable[[Path], str | None]  # returns which number is not finite, or nothing
    message: str = ""  # part of an error or warning that must come; none is needed by default


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Bad data through evaluation, reference methods, NERVE and interpretation, then invariances."""
    kernels = KERNELS[:1] if short else KERNELS
    features = ("raw",) if short else ("raw", "pca")
    cases = [*evaluation_cases(seed, kernels, features), *method_cases(seed, short)]
    began = time.perf_counter()
    counts: Counter[str] = Counter()
    wrong = []
    for i, case in enumerate(cases):
        verdict, fault = judge(case, folder / f"case-{i}")
        counts[verdict] += 1
        if verdict == "wrong":
            wrong.append(f"{case.label}: {fault}")
    seconds = time.perf_counter() - began
    measured = (
        f"{len(cases)} cases in {seconds:.0f} s: {counts['numbers']} gave numbers, "
        f"{counts['warned']} a warning and {counts['refused']} an error that names participants, "
        "site or target"
    )
    promises = [
        Promise(
            "No NaN or infinity reaches a table silently",
            with_troubles(measured, wrong),
            not wrong,
        ),
        batches_promise(seed, short),
        order_promise(seed),
    ]
    return promises if short else [*promises, threads_promise(seed)]


def judge(case: Case, folder: Path) -> tuple[str, str]:
    """The verdict on a case (numbers, warned, refused or wrong), and what was wrong."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        try:
            not_finite = case.compute(folder)
        except NerveError as error:
            if case.message and case.message in str(error):
                return "refused", ""
            return "wrong", f"says {error}"
        except Exception as error:  # what a user would see as a traceback
            return "wrong", f"{type(error).__name__}: {error}"
    of_nerve = [
        str(warning.message) for warning in shown if issubclass(warning.category, NerveWarning)
    ]
    of_numpy = [
        str(warning.message) for warning in shown if issubclass(warning.category, RuntimeWarning)
    ]
    if of_numpy:
        return "wrong", f"numpy warns: {min(of_numpy)}"
    if not_finite and not any(not_finite in sentence for sentence in of_nerve):
        return "wrong", f"{not_finite} is not a number, and no message says so"
    if case.message and not any(case.message in sentence for sentence in of_nerve):
        return "wrong", f"no message says {case.message!r}"
    return ("warned", "") if case.message else ("numbers", "")


# ---- what is computed from the data


def evaluated(cohort: Cohort, features: Any, targets: Any = ("y",), **options: Any) -> Callable:
    """A function that computes all of `nerve evaluate` and returns a column that is not finite."""

    def compute(folder: Path) -> str | None:
        settings = {"n_folds": 3, "n_permutations": 5} | options
        rows = list(features) if isinstance(features, tuple) else features
        predictions = nerve.evaluate(rows, cohort, list(targets), **settings).predictions
        tables = [
            predictions,
            score_table(predictions, 20),
            all_comparisons(predictions, None, 20),
        ]
        participants, protocol = prepare_participants(
            cohort, nerve.Protocol(targets=list(targets), **settings)
        )
        for row in rows if isinstance(rows, list) else [rows]:
            feature_set = make_feature_set(row, cohort)
            if feature_set.permutes:
                feature_set.prepare(cohort, participants, protocol)
                tables.append(predict_permuted_targets(feature_set, participants, protocol))
        return first_not_finite(tables)

    return compute


def first_not_finite(tables: Iterable[pd.DataFrame]) -> str | None:
    """The first column of numbers in which a value is not finite, if there is one.

    Columns that only targets of two classes have may be empty.
    """
    for table in tables:
        for column in table.select_dtypes("number"):
            if column in ONLY_OF_TWO_CLASSES or column.startswith("variant"):  # names, often empty
                continue
            # A single seed has no stability, and the table says how many seeds there were.
            if column.endswith("stability") and (table["n_seeds"] == 1).all():
                continue
            if not np.isfinite(table[column].to_numpy(float)).all():
                return str(column)
    return None


def embedded(name: str, cohort: Cohort) -> Callable:
    """A function that fits a method and checks its features and its reconstruction."""

    def compute(folder: Path) -> str | None:
        if name == "nerve":
            model = small_nerve()
        elif name == "raw":
            model = method_class(name)()
        else:
            model = method_class(name)(n_components=8)
        model.fit(cohort)
        if not np.isfinite(model.transform(cohort)).all():
            return "an embedding"
        if hasattr(model, "reconstruct") and not np.isfinite(model.reconstruct(cohort)).all():
            return "a reconstruction"
        return None

    return compute


def interpreted(cohort: Cohort) -> Callable:
    """A function that makes every table of `nerve interpret` and checks it."""

    def compute(folder: Path) -> str | None:
        model = small_nerve().fit(cohort)
        tables = interpret_to(folder, [model], cohort, ["y"], n_folds=4, n_bootstrap=20)
        return first_not_finite(tables.values())

    return compute


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
    """A cohort of participants sub-000 … with a target y."""
    n = len(fc)
    participants = pd.DataFrame({"participant_id": [f"sub-{i:03}" for i in range(n)]})
    participants = participants.assign(y=np.random.default_rng([seed, 2]).normal(size=n), **columns)
    regions = pd.DataFrame(
        {"label": [f"r{i}" for i in range(R)], "network": list("ABC") * (R // 3)}
    )
    return Cohort(fc, participants, Parcellation.from_table(regions, name="twelve"), name="odd")


def odd_connectivity(seed: int) -> dict[str, np.ndarray]:
    """FC with little or no information."""
    signs = np.sign(np.random.default_rng(seed).normal(size=(N, R)))
    odd = {
        "rank one": signs[:, :, None] * signs[:, None, :],
        "float16": connectivity(seed).astype(np.float16),
        "twins": np.concatenate([connectivity(seed, N // 2)] * 2),
    }
    for name, value in (("a constant region", 0.5), ("an empty region", 0.0)):
        fc = connectivity(seed)
        fc[:, 3, :] = value
        fc[:, :, 3] = value
        odd[name] = fc
    for scale in (1e-30, 1e-10, 1e10):
        odd[f"FC × {scale:g}"] = connectivity(seed) * np.float32(scale)
    return {
        name: fc if fc.dtype == np.float16 else fc.astype(np.float32) for name, fc in odd.items()
    }


def with_one_participant_at(seed: int, participant: int, value: float) -> np.ndarray:
    """FC in which one participant has the same value everywhere."""
    fc = connectivity(seed)
    fc[participant] = value
    return fc


def evaluation_cases(seed: int, kernels: tuple[str, ...], sets: tuple[str, ...]) -> Iterator[Case]:
    """Evaluate these feature sets, or those of a case, with every kernel."""
    fc = connectivity(seed)
    rng = np.random.default_rng([seed, 3])
    y = rng.normal(size=N)
    age = rng.uniform(8, 20, N)
    features = rng.normal(size=(N, 6))
    site = np.tile(["A", "B", "C", "D"], N // 4)
    identical_fc = np.repeat(connectivity(seed, 1), N, axis=0)
    for kernel in kernels:
        needs_variance = kernel in ("correlation", "cosine")

        def case(label: str, cohort: Cohort, message: str = "", **options: Any) -> Case:
            settings = {"features": sets, "kernel": kernel} | options  # noqa: B023
            return Case(f"{label}, {kernel}", evaluated(cohort, **settings), message)  # noqa: B023

        for name, odd in odd_connectivity(seed).items():
            yield case(name, cohort_of(odd))
        yield case("FC × 1e30", cohort_of(fc * np.float32(1e30)))
        yield case(
            "identical participants",
            cohort_of(identical_fc),
            "have the same FC",
            features=("raw", "pca"),
        )
        yield case(
            "a participant without FC",
            cohort_of(with_one_participant_at(seed, 5, 0.0)),
            "sub-005" if needs_variance else "",
        )
        yield case(
            "a participant with missing FC",
            cohort_of(with_one_participant_at(seed, 7, np.nan)),
            "sub-007",
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
        many_covariates = {f"c{i}": rng.normal(size=N) for i in range(N + 5)}
        yield case(
            "more covariates than participants",
            cohort_of(fc, **many_covariates),
            "y: the covariates",
            covariates=tuple(many_covariates),
        )
        yield case("ComBat", cohort_of(fc, site=site), site="site", combat=True)
        yield case("ComBat, one participant per site", cohort_of(fc, site=[f"S{i}" for i in range(N)]), "site S0",
                   site="site", combat=True)  # fmt: skip
        yield case("ComBat, identical participants", cohort_of(identical_fc, site=site), "have the same FC", features=("raw",),
                   site="site", combat=True)  # fmt: skip
        for scale in (1e-200, 1e200):
            yield case(f"features × {scale:g}", cohort_of(fc), features=features * scale)
        one_constant = np.where(np.arange(6) == 2, 3.0, features)
        yield case("a constant feature", cohort_of(fc), features=one_constant)
        is_refused = kernel == "correlation"
        message = "do not vary" if is_refused else "predictions of y are constant"
        yield case("constant features", cohort_of(fc), message, features=np.ones((N, 6)))


def method_cases(seed: int, short: bool) -> Iterator[Case]:
    """PCA, ppca and NERVE, and the interpretation of NERVE."""
    identical_fc = np.repeat(connectivity(seed, 1), N, axis=0)
    missing = cohort_of(with_one_participant_at(seed, 7, np.nan))
    huge = cohort_of(with_one_participant_at(seed, 7, 1e20))
    # float32 has no squares of 1e-30, and NERVE's view, which has a diagonal of ones, has no
    # logarithm of 1e10.
    messages = {
        ("ppca", "FC × 1e-30"): "no value of FC",
        ("nerve", "FC × 1e+10"): "not positive definite",
    }
    for name in ("pca", "ppca", "nerve"):
        if name != "nerve" or not short:
            for label, fc in odd_connectivity(seed).items():
                message = messages.get((name, label), "")
                yield Case(f"{label}, {name}", embedded(name, cohort_of(fc)), message)
        message = "" if name == "nerve" else "is the same"
        yield Case(
            f"identical participants, {name}", embedded(name, cohort_of(identical_fc)), message
        )
        yield Case(f"missing FC, {name}", embedded(name, missing), "sub-007")
        yield Case(f"FC of 1e20, {name}", embedded(name, huge), "sub-007")
    yield Case("missing FC, raw", embedded("raw", missing), "sub-007")
    if not short:
        for label in ("rank one", "twins", "a constant region"):
            cohort = cohort_of(odd_connectivity(seed)[label])
            yield Case(f"{label}, interpretation", interpreted(cohort), "chance")


# ---- the same data in another order, in other batches, with more threads


def batches_promise(seed: int, short: bool) -> Promise:
    """Compute embeddings of one model with several batch sizes."""
    cohort = cohort_of(connectivity(seed, 70))
    model = small_nerve(seed=seed).fit(cohort)
    poolings = ("mean",) if short else ("mean", "cls", "tokens", "pca")
    largest = {}
    for pooling in poolings:
        embeddings = []
        for batch_size in (64, 1, 7):
            with mock.patch.object(type(model), "batch_size_apply", batch_size):
                embeddings.append(model.transform(cohort, pooling))
        first, *others = embeddings
        largest[pooling] = max(relative_difference(first, other) for other in others)
    measured = ", ".join(f"{pooling} {value:.0e}" for pooling, value in largest.items())
    return Promise(
        "Embeddings do not depend on the batch size (1, 7 or 64), "
        f"to {EMBEDDING:g} of the largest value",
        f"largest difference by pooling: {measured}",
        max(largest.values()) <= EMBEDDING,
    )


def order_promise(seed: int) -> Promise:
    """Embed and evaluate the same participants in another order, with one model."""
    cohort = cohort_of(connectivity(seed), age=np.random.default_rng(seed).uniform(8, 20, N))
    shuffled = cohort.subset(np.random.default_rng([seed, 4]).permutation(N))
    model = small_nerve(seed=seed).fit(cohort)
    embedding = model.transform(cohort)
    shuffled_embedding = model.transform(shuffled)
    shuffled_ids = pd.Index(shuffled.participants["participant_id"])
    places = shuffled_ids.get_indexer(cohort.participants["participant_id"])
    scores = scores_of(cohort, embedding)
    shuffled_scores = scores_of(shuffled, shuffled_embedding)
    embedding_difference = relative_difference(embedding, shuffled_embedding[places])
    score_difference = float(np.abs(scores - shuffled_scores).max())
    return Promise(
        f"The order of participants does not change embeddings ({EMBEDDING:g}), "
        f"nor r and its interval ({SCORE:g})",
        f"largest difference: embeddings {embedding_difference:.0e}, scores {score_difference:.0e}",
        embedding_difference <= EMBEDDING and score_difference <= SCORE,
    )


def threads_promise(seed: int) -> Promise:
    """Train, embed and evaluate with one thread and with two, each in a process of its own."""
    code = (
        "import sys; import numpy as np, torch; torch.set_num_threads(int(sys.argv[1]));"
        "from torture.numerical import scores_and_embedding;"
        "np.save(sys.stdout.buffer, scores_and_embedding(int(sys.argv[2])))"
    )
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    results = []
    for n_threads in ("1", "2"):
        process = subprocess.run(
            [sys.executable, "-c", code, n_threads, str(seed)],
            capture_output=True,
            env=os.environ | dict.fromkeys(variables, n_threads),
            cwd=Path(__file__).parents[1],
        )
        if process.returncode:
            return Promise("Threads", process.stderr.decode().strip().splitlines()[-1], False)
        results.append(np.load(io.BytesIO(process.stdout), allow_pickle=False))
    scores, embedding = np.split(results[0], [N_SCORES])
    scores_of_two, embedding_of_two = np.split(results[1], [N_SCORES])
    score_difference = float(np.abs(scores - scores_of_two).max())
    embedding_difference = relative_difference(embedding, embedding_of_two)
    return Promise(
        "One thread or two: a small model is trained to the same embeddings "
        f"({EMBEDDING:g}) and r ({SCORE:g})",
        f"largest difference: embeddings {embedding_difference:.0e}, scores {score_difference:.0e}",
        embedding_difference <= EMBEDDING and score_difference <= SCORE,
    )


N_SCORES = 12  # four of each of three feature sets


def scores_and_embedding(seed: int) -> np.ndarray:
    """The scores, then the embeddings of a model that is trained here, as one vector."""
    warnings.simplefilter("ignore")
    cohort = cohort_of(connectivity(seed))
    embedding = small_nerve(seed=seed).fit(cohort).transform(cohort)
    return np.concatenate([scores_of(cohort, embedding), embedding.ravel()])


def scores_of(cohort: Cohort, embedding: np.ndarray) -> np.ndarray:
    """r with its interval and r2 of raw FC, PCA and the embedding, as one vector."""
    features = {"raw": "raw", "pca": "pca", "nerve": embedding}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = score_table(nerve.evaluate(features, cohort, ["y"], n_folds=5).predictions, 100)
    return table[["r", "r_low", "r_high", "r2"]].to_numpy(float).ravel()


def relative_difference(left: np.ndarray, right: np.ndarray) -> float:
    """The largest difference, relative to the largest value."""
    return float(np.abs(left - right).max() / max(np.abs(left).max(), np.finfo(np.float32).tiny))
