"""NERVE as a scikit-learn estimator: a masked autoencoder of FC patches defined by pairs of networks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from nerve.checks import NerveWarning, one_of, problem
from nerve.cohort import Cohort
from nerve.methods.base import Encoder
from nerve.methods.config import PRESETS, NerveConfig, resolve
from nerve.methods.outputs import checked_embeddings
from nerve.methods.packing import PackingSource, packed_source, patching_for, remove_packed
from nerve.models.masked_autoencoder import POOLINGS, MaskedAutoencoder
from nerve.models.starts import start_from
from nerve.parcellation import Parcellation, load_parcellation
from nerve.patching import Patching
from nerve.training import Draws, Source, TrainingSettings
from nerve.training.draws import VALIDATION_STEP

_SHORTCUTS = ("patching", "tokenizer", "mask_ratio", "dim", "depth", "epochs", "batch_size", "lr", "seed", "device")
_SAMPLE = 512  # people read at a time for the start
_SUMMARISED = 2048  # people, at most, from whom the components of `pooling="pca"` come
_AT_A_TIME = 64  # people whose factors are found together


class NERVE(Encoder):
    """Network-aware representations of functional connectivity by bilinear tokenization.

    FC is cut into one patch for each pair of networks, each patch becomes a token, half of the tokens are masked, a
    transformer encodes the others and a light decoder reconstructs the masked patches. The representation of a person
    is the encoder's output with nothing masked. Presets with `completion` predict patches from factors of the person
    first and leave the rest to the transformer; there the representation is the person's factors (docs/recipe.md).

    Parameters
    ----------
    parcellation : Parcellation or str, optional
        Regions and networks to work in. Cohorts are brought into its order by label, arrays must be in it. By default
        that of the cohort; for an array, none: consecutive regions are then grouped by sixteens.
    patching : Patching or str, optional
        Groups of regions other than the networks: a `Patching`, or ``"grid16"``, ``"permuted0"``,
        ``"schaefer400-7"``.
    preset : {"default", "paper", "small"}
        Where every setting that is not given comes from.
    tokenizer : {"bilinear", "shared", "specific"}, optional
    mask_ratio : float, optional
    dim, depth : int, optional
        Width and layers of the encoder.
    epochs, batch_size : int, optional
    lr : float, optional
    pooling : {"mean", "cls", "tokens", "factors", "pca"}, optional
        What `transform` returns: the mean of the patch tokens, the CLS token, all patch tokens, the person's factors
        minus the group's, or these on principal components of the training people. By default ``pca`` where the
        configuration has `completion`, else ``mean``.
    seed : int
        Fixes start, split, data order and masks.
    device : str
        ``auto``, ``cpu``, ``cuda`` …
    options : dict, optional
        Any other setting of `nerve.methods.config.NerveConfig`.

    Attributes
    ----------
    module_ : MaskedAutoencoder
    patching_ : Patching
        The patches, in the order of the tokens.
    parcellation_ : Parcellation
    history_ : DataFrame
        One row an epoch.
    config_ : NerveConfig
        All settings, resolved.

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 32, 50))])
    >>> encoder = NERVE(patching="grid8", preset="small", dim=16, epochs=2, device="cpu")
    >>> encoder.fit(fc).transform(fc).shape
    (12, 16)
    >>> encoder.transform(fc, pooling="tokens").shape, encoder.patching_.n_patches
    ((12, 10, 16), 10)
    """

    paper = "NERVE: network-aware bilinear tokenization for brain functional connectivity representation learning"
    presets = PRESETS
    batch_size_apply = 64  # larger batches gain nothing on a CPU and spill its cache

    def __init__(
        self,
        parcellation: Parcellation | str | None = None,
        patching: Patching | str | None = None,
        preset: str = "default",
        tokenizer: str | None = None,
        mask_ratio: float | None = None,
        dim: int | None = None,
        depth: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        pooling: str | None = None,
        seed: int = 0,
        device: str = "auto",
        options: dict[str, Any] | None = None,
    ) -> None:
        self.parcellation = parcellation
        self.patching = patching
        self.preset = preset
        self.tokenizer = tokenizer
        self.mask_ratio = mask_ratio
        self.dim = dim
        self.depth = depth
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.pooling = pooling
        self.seed = seed
        self.device = device
        self.options = options

    @classmethod
    def from_preset(cls, name: str = "default", **changes: Any) -> Self:
        """A preset with any setting of the configuration, parameter of the class or not, given by name.

        Examples
        --------
        >>> NERVE.from_preset("small", epochs=3, clip=None).config().clip is None
        True
        """
        own = set(cls._get_param_names()) - {"options"}
        options = {setting: value for setting, value in changes.items() if setting not in own}
        return cls(preset=name, options=options or None, **{key: changes[key] for key in changes if key in own})

    def config(self) -> NerveConfig:
        """All settings, resolved: preset, then `options`, then parameters that are given."""
        given = {name: getattr(self, name) for name in _SHORTCUTS if getattr(self, name) is not None}
        if isinstance(self.patching, Patching):
            given.pop("patching")
        return resolve(self.preset, self.options or {}, given, where=type(self).__name__)

    # ---- what the base asks for

    def build(self, parcellation: Parcellation) -> MaskedAutoencoder:
        """The untrained model for the regions of a parcellation."""
        self.config_ = self.config()
        self.patching_ = self._patching(parcellation)
        return MaskedAutoencoder(self.patching_, **self.config_.model_options())

    def training_settings(self) -> TrainingSettings:
        """How it is trained."""
        self._pooling(self.pooling)
        return self.config().training_settings()

    def _pooling(self, given: str | None) -> str:
        """The pooling that is meant."""
        if given is None:
            return "pca" if self.config().completion else "mean"
        return one_of("pooling", given, POOLINGS)

    def source(self, cohort: Cohort, run_dir: Path | None = None) -> Source:
        """Packed FC, made once."""
        return packed_source(cohort, self.patching_, run_dir)

    def start(self, module: torch.nn.Module, source: Source, rows: np.ndarray) -> None:
        """Mean, factors and token size of the training people, where the configuration asks for them."""
        order = np.random.default_rng([self.seed, 3]).permutation(rows)
        if isinstance(module, MaskedAutoencoder):
            start_from(module, _batches(source, order, _SAMPLE))
            self.summarise(module, source)

    def summarise(self, module: torch.nn.Module, source: Source) -> None:
        """Components of the factors of everyone given to `fit`, for ``pca``; nothing without `completion`.

        Validation people too: among fewer people than FC has entries, those whom the components have not seen come out
        shorter than the others, and a kernel between the two kinds is distorted.
        """
        completion = getattr(module, "completion", None)
        if completion is not None:
            chosen = np.random.default_rng([self.seed, 6]).permutation(len(source))[:_SUMMARISED]
            device = completion.factors.device
            completion.fit_summary(batch.to(device) for batch in _batches(source, np.sort(chosen), _AT_A_TIME))

    def _patching(self, parcellation: Parcellation) -> Patching:
        if isinstance(self.patching, Patching):
            if self.patching.n_regions != parcellation.n_regions:
                raise problem(
                    "patching",
                    f"it groups {self.patching.n_regions} regions",
                    expected=f"the {parcellation.n_regions} of {parcellation.name}",
                )
            return self.patching
        name = self.config().patching
        if name == "networks" and parcellation.n_networks == 1 and parcellation.name == "unnamed":
            warnings.warn(
                "No parcellation is given: consecutive regions are grouped by sixteens. Give parcellation= to group "
                "them by network.",
                NerveWarning,
                stacklevel=2,
            )
            name = "grid16"
        return patching_for(parcellation, name)

    # ---- verbs

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        run_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
        progress: bool = False,
    ) -> Self:
        """Train on a cohort, several cohorts, or an (n, R, R) array; `y` is ignored.

        With `run_dir`, checkpoints and history are written there and `resume` goes on from them.
        """
        super().fit(X, y, run_dir=run_dir, resume=resume, progress=progress)
        cohort = self.fitted_cohort(X)
        self.summarise(self.module_, PackingSource(cohort, self.patching_))
        remove_packed(None if run_dir is None else Path(run_dir))
        return self

    def transform(self, X: Any, pooling: str | None = None, *, progress: bool = False) -> np.ndarray:
        """Representations of the same people in the same order.

        Parameters
        ----------
        X : Cohort or (n, R, R) array
            A cohort may have its regions in another order; one that lacks a region or network is refused by name.
        pooling : {"mean", "cls", "tokens", "factors", "pca"}, optional
            As in the class by default.
        progress : bool
            Show progress on standard error.

        Returns
        -------
        (n, dim) array, or (n, patches, dim) for ``tokens``, in the order of `patching_.pairs`, or (n, R · rank) for
        ``factors``
        """
        chosen = self._pooling(self.pooling if pooling is None else pooling)
        source = PackingSource(self.fitted_cohort(X), self.patching_)
        module: Any = self.module_
        values = self.apply(lambda packed: module.embed(packed, chosen), source, progress)
        return checked_embeddings(values, source.cohort)

    def reconstruct(self, X: Any, masked: np.ndarray | None = None) -> np.ndarray:
        """FC as the model predicts it from the visible patches.

        Parameters
        ----------
        X : Cohort or (n, R, R) array
        masked : (n, K) array of int, optional
            Patches to hide from the model, for each person; none by default.

        Returns
        -------
        (n, R, R) array, in the region order of `parcellation_`
        """
        packed_in = PackingSource(self.fitted_cohort(X), self.patching_)
        source = packed_in if masked is None else _Masked(packed_in, np.asarray(masked))

        def verb(batch: Any) -> torch.Tensor:
            return self.module_.reconstruct(*(batch if masked is not None else (batch,)))  # type: ignore[operator]

        return self.patching_.unpack(self.apply(verb, source))

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the reconstruction loss of masked patches, with masks fixed by the seed: larger is better."""
        source = PackingSource(self.fitted_cohort(X), self.patching_)
        noise = Draws(self.seed, VALIDATION_STEP, len(source)).uniform(self.patching_.n_patches)

        def verb(batch: Any) -> torch.Tensor:
            packed, uniform = batch
            module: Any = self.module_
            loss = module.masked_loss(module._centred(packed), *module.split(uniform))
            return loss.expand(len(packed))  # a batch's mean counts once for each of its people

        return -float(self.apply(verb, _Masked(source, noise.numpy())).mean(dtype=float))

    @property
    def _n_features_out(self) -> int:
        if self._pooling(self.pooling) == "factors":
            return len(self.module_.completion.components)  # type: ignore[union-attr, arg-type]
        return self.config_.dim

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """dim0 … of the pooled representation."""
        return np.array([f"dim{k}" for k in range(self._n_features_out)], object)

    def _described_parameters(self) -> dict[str, Any]:
        """The preset's name for the reader, and every setting resolved, so that presets may change later."""
        described: dict[str, Any] = {
            "preset": self.preset,
            "pooling": self.pooling,
            "seed": self.seed,
            "options": self.config().model_dump(
                mode="json", exclude={"seed", "device", "compile", "checkpoint_seconds"}
            ),
        }
        if isinstance(self.patching, Patching):
            groups = {"group_of": self.patching.group_of.tolist(), "group_names": list(self.patching.group_names)}
            described["patching"] = groups
        return described

    @classmethod
    def parameters_from_json(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        """The inverse of `_described_parameters`."""
        values = super().parameters_from_json(parameters)
        if isinstance(values.get("patching"), dict):
            values["patching"] = Patching(values["patching"]["group_of"], values["patching"]["group_names"])
        return values

    def target_parcellation(self, data: Any) -> Parcellation | None:
        """The parameter, as an object."""
        return None if self.parcellation is None else load_parcellation(self.parcellation)


def _batches(source: Source, rows: np.ndarray, size: int) -> Iterator[torch.Tensor]:
    """The people of some rows, some at a time."""
    for begin in range(0, len(rows), size):
        yield source.batch(np.sort(rows[begin : begin + size]))


class _Masked:
    """Packed FC with one row of numbers (masked patches, or uniform draws) for each person."""

    def __init__(self, source: Source, numbers: np.ndarray) -> None:
        if len(numbers) != len(source):
            raise problem("masked", f"{len(numbers)} rows", expected=f"one for each of {len(source)} people")
        self.source, self.numbers = source, torch.from_numpy(np.ascontiguousarray(numbers))

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, rows: np.ndarray) -> tuple[Any, torch.Tensor]:
        return self.source.batch(rows), self.numbers[torch.from_numpy(rows)]
