"""What determines a run: its key, whose hash is the id of the run and names its folder `runs/ID`.

A run that is final is not computed again: `launch.run_task` leaves `runs/ID` as it is where
the manifest in it says "done", or "not available" (a cohort lacks what the method reads). A run
that failed is computed again. Whatever changes the key gives another id, and so another run:

    kind                         what is computed: encode, predict or train (see `tasks`)
    recipe                       what is trained (`Recipe`): method, preset, settings, seed, and a
                                 hash of the content of each file that a setting names
    name, settings, content      where nothing is trained: the features by name with the protocol's
                                 fields that they change, or a hash of the user's file
    cohort, target               what is predicted
    scope                        which tested participants a model of the user's was trained on, as
                                 the experiment file says
    needs                        ids of the runs that this one reads
    data, timeseries, protocol   the cohort that is predicted, and how (`cohort_in_key`)
    pretrained_on, timeseries    the cohorts that an encoder is trained on (`pool_in_key`). Where one
                                 encoder serves all folds, its key has no protocol
    code                         the version of the package and a hash of all its files

Not in the key: what a row is called, where a file lies, device, launcher, number of jobs, and the
versions of other packages, which the manifest records.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerve._utils.errors import problem
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.methods import PRETRAINED, make_method
from nerve.methods.pretrained import find_model

if TYPE_CHECKING:
    from nerve.experiments.config import ExperimentConfig
    from nerve.experiments.tasks import Task

# Fields of a task that are not in the key: what the run is called, and where its file lies. The
# entries of `determined_by` are added one by one.
_NOT_KEY_FIELDS = ("row", "path", "determined_by")
_COMPILED = "__pycache__"  # folders that Python makes, which decide nothing


def run_key(task: Task) -> dict[str, Any]:
    """What determines the result of a run, as plain JSON.

    Parameters
    ----------
    task : Task
        The run.

    Returns
    -------
    dict
        Every field of the task but those that only name it, and what `determined_by` holds:
        `cohort_in_key` or, of an encoder, `pool_in_key`.
    """
    fields = asdict(task)
    for name in _NOT_KEY_FIELDS:
        fields.pop(name, None)
    return {"kind": task.kind, **fields, **task.determined_by}


def run_id(task: Task) -> str:
    """The id of a run, which names its folder `runs/ID`: the hash of its key."""
    return fingerprint(run_key(task))


def cohort_in_key(
    config: ExperimentConfig, name: str, data: Mapping[str, str], code: str
) -> dict[str, Any]:
    """A cohort under its protocol, as it enters the key of a run that predicts it.

    Parameters
    ----------
    config : ExperimentConfig
        The comparison.
    name : str
        One of its cohorts.
    data : mapping
        The fingerprint of each cohort: `cohort_fingerprint`.
    code : str
        The `code_version`.

    Returns
    -------
    dict
        All fields of the protocol but the number of bootstrap resamples: intervals are made after
        the runs.
    """
    return {
        "data": data[name],
        "timeseries": config.cohorts[name].timeseries,
        "protocol": config.protocol_of(name).prediction_settings(),
        "code": code,
    }


def pool_in_key(config: ExperimentConfig, data: Mapping[str, str], code: str) -> dict[str, Any]:
    """The cohorts that encoders are trained on, as they enter the key of a training.

    Parameters
    ----------
    config : ExperimentConfig
        The comparison.
    data : mapping
        The fingerprint of each cohort: `cohort_fingerprint`.
    code : str
        The `code_version`.

    Returns
    -------
    dict
        No protocol: one encoder serves every target and every protocol.
    """
    pooled = [name for name, cohort in config.cohorts.items() if cohort.pretrain]
    return {
        "pretrained_on": {name: data[name] for name in pooled},
        "timeseries": {name: config.cohorts[name].timeseries for name in pooled},
        "code": code,
    }


def cohort_fingerprint(
    cohort: Cohort, parcellation: Parcellation, columns: Mapping[str, str], trained_on: str | None
) -> str:
    """A hash of a cohort as it enters an experiment.

    Parameters
    ----------
    cohort : Cohort
        As it lies on disk: FC, participants table, labels and time series.
    parcellation : Parcellation
        The region order of the experiment.
    columns : mapping
        The columns that the experiment renames.
    trained_on : str, optional
        The fingerprint of the cohort that is trained on instead of this one.

    Returns
    -------
    str
        Another one if any of these is changed.
    """
    parts: list[Any] = [cohort.fingerprint, cohort.measure, parcellation.fingerprint, columns]
    if trained_on is not None:
        parts.append(trained_on)
    return fingerprint(parts)


@dataclass(frozen=True)
class Recipe:  # numpydoc ignore=PR02
    """What is trained: a method with its settings and seed.

    Parameters
    ----------
    method : str
        A name of `METHODS`.
    preset : str
        The settings to begin with.
    settings : mapping
        Those that differ from the preset.
    seed : int
        Of the training.
    files : mapping
        Of each setting that names a file, the hash of its content.
    """

    method: str
    preset: str
    settings: Mapping[str, Any]
    seed: int
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def with_file_hashes(
        cls, method: str, preset: str, settings: Mapping[str, Any], seed: int
    ) -> Recipe:
        """Make a recipe, with the hashes of the files that its settings name now.

        Parameters
        ----------
        method : str
            A name of `METHODS`.
        preset : str
            The settings to begin with.
        settings : mapping
            Those that differ from the preset.
        seed : int
            Of the training.

        Returns
        -------
        Recipe
            Its `make` refuses files that were changed since.
        """
        files = {}
        for name, value in settings.items():
            names_model = name == PRETRAINED and value is not None
            names_file = isinstance(value, str) and Path(value).is_file()  # regions of `patching`
            if names_model or names_file:
                files[name] = content_hash(_path_in_setting(name, value))
        return cls(method, preset, dict(settings), seed, files)

    def make(self, device: str = "cpu") -> Any:
        """Make the estimator, not fitted.

        Parameters
        ----------
        device : str
            Where it is to be trained.

        Returns
        -------
        estimator
            Files that its settings name are still those that were planned with.
        """
        for name, content in self.files.items():
            check_content(_path_in_setting(name, self.settings[name]), content)
        return make_method(self.method, self.preset, self.settings, seed=self.seed, device=device)


def _path_in_setting(name: str, value: str) -> Path:
    """The file or folder that a setting names; a trained model may be given by its name."""
    return find_model(value) if name == PRETRAINED else Path(value)


def fingerprint(content: Any) -> str:
    """A short hash of plain JSON content, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def content_hash(path: str | os.PathLike[str]) -> str:
    """A hash of the content of a file, or of all files of a folder."""
    path = Path(path)
    if path.is_file():
        files = [path]
    else:
        files = sorted(file for file in path.rglob("*") if file.is_file())
    if not files:
        raise problem(
            path,
            "there is no such file or folder",
            expected="a trained model, or a table of features",
        )
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(str(file.relative_to(path)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def check_content(path: str | os.PathLike[str], expected: str) -> None:
    """Refuse a file or folder that was changed since the runs were planned.

    Parameters
    ----------
    path : path
        The file or folder.
    expected : str
        Its `content_hash` at that time.
    """
    if content_hash(path) != expected:
        raise problem(
            path,
            "it was changed after the experiment was started",
            remedy="Start the experiment again.",
        )


@functools.cache
def code_version() -> str:
    """The version of the package and a hash of all its files."""
    # computed once per process: what it has imported does not change when files are edited
    import nerve

    return f"{nerve.__version__}+{source_hash(Path(nerve.__file__).parent)}"


def source_hash(package: Path) -> str:
    """A hash of every file of a package: code, tables, templates and settings.

    Parameters
    ----------
    package : Path
        The folder of the package.

    Returns
    -------
    str
        Another one if any file is changed, added, renamed or removed.
    """
    contents = {}
    for path in sorted(package.rglob("*")):
        if path.is_file() and _COMPILED not in path.parts:
            name = path.relative_to(package).as_posix()
            contents[name] = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    return fingerprint(contents)


@functools.cache
def package_versions() -> Mapping[str, str]:
    """Versions of Python and of the packages that compute."""
    numbers = {"python": platform.python_version(), "platform": platform.system()}
    for name in ("nerve-fc", "torch", "numpy", "scipy", "pandas", "scikit-learn", "nilearn"):
        with suppress(PackageNotFoundError):
            numbers[name] = version(name)
    return numbers
