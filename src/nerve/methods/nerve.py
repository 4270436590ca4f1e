"""NERVE as a scikit-learn estimator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from nerve._utils.errors import NerveWarning, one_of, problem
from nerve.core.masked_autoencoder import POOLINGS, MaskedAutoencoder
from nerve.core.patching import Patching
from nerve.core.randomness import VALIDATION_STEP, Draws
from nerve.core.tokenizers import TOKENIZERS, Tokenizer
from nerve.core.training import ArrayDataset, Dataset, TrainingSettings
from nerve.core.views import View, check_array_shapes, make_view
from nerve.data.cohort import Cohort
from nerve.data.named_patchings import is_patching_name, patching_for
from nerve.data.parcellation import Parcellation
from nerve.data.quality.likeness import FEWEST, Likeness, Signature, likeness
from nerve.methods.base import CONFIG, WEIGHTS, Saved, read_configuration
from nerve.methods.config import PRESETS, NerveConfig, resolve, tokenizer_name
from nerve.methods.data import checked_embeddings, chunks
from nerve.methods.packing import PackingSource, fit_view
from nerve.methods.pretrained import located
from nerve.methods.recentring import UNSEEN, SiteShifts, card_lines, sites_of
from nerve.methods.settings import check_names
from nerve.methods.trained import Encoder, mean_sample

_AT_A_TIME = 512  # participants read together for mean and size


class NERVE(Encoder):
    """Network-aware representations of functional connectivity by bilinear tokenization.

    A view of FC (FC itself, in the paper) is cut into one patch for each pair of networks, each patch becomes a token,
    half of the tokens are masked, a transformer encodes the others and a light decoder reconstructs the masked patches.
    The representation of a participant is made from the encoder's tokens with nothing masked.

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
    seed : int
        Fixes initial weights, split, data order and masks.
    device : str
        ``auto``, ``cpu``, ``cuda`` …
    **settings
        Any setting of `nerve.methods.config.NerveConfig`, instead of the preset's. Among them:

        - view : {"fc", "tangent", "shrunk"}, the matrix that is cut into patches (see `nerve.core.views`); one other than
          ``fc`` is not the paper's.
        - recentre : column of the participants table, the site: in the view, the mean of each site is carried to the
          common mean, and that of a site that was not trained on by its own participants
          (`nerve.methods.recentring`). Not for ``fc``.
        - tokenizer : {"bilinear", "shared", "specific"} or a class derived from `nerve.core.Tokenizer`.
        - mask_ratio, dim, depth (width and layers of the encoder), epochs, batch_size, lr.
        - pooling : {"pca", "mean", "cls", "tokens"}, what `transform` returns: principal components of the patch
          tokens, their mean, the CLS token, or all of them.

    Attributes
    ----------
    module_ : MaskedAutoencoder
    patching_ : Patching
        The patches, in the order of the tokens.
    view_ : View
    shifts_ : SiteShifts or None
        Of the sites of `recentre`.
    parcellation_ : Parcellation
    history_ : DataFrame
        One row per epoch.
    config_ : NerveConfig
        All settings, resolved.

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 32, 50))])
    >>> encoder = NERVE(patching="grid8", preset="small", dim=16, epochs=2, device="cpu", n_components=8)
    >>> encoder.fit(fc).transform(fc).shape
    (12, 8)
    >>> encoder.transform(fc, pooling="tokens").shape, encoder.patching_.n_patches
    ((12, 10, 16), 10)
    """

    batch_size_apply: ClassVar[int] = 64  # larger batches gain nothing on a CPU and spill its cache
    patching_: Patching
    view_: View
    shifts_: SiteShifts | None = None
    signature_: Signature | None  # of the training cohort, where it had ten participants
    config_: NerveConfig

    def __init__(
        self,
        parcellation: Parcellation | str | None = None,
        patching: Patching | str | None = None,
        preset: str = "default",
        *,
        seed: int = 0,
        device: str = "auto",
        **settings: Any,
    ) -> None:
        self.parcellation, self.patching, self.preset = parcellation, patching, preset
        self.seed, self.device = seed, device
        self.__dict__.update(settings)

    @classmethod
    def from_preset(cls, name: str = "default", **changes: Any) -> Self:
        """A preset with parameters and settings given by name; names that do not exist are refused here.

        Examples
        --------
        >>> NERVE.from_preset("small", epochs=3, clip=None).config().clip is None
        True
        """
        return cls(preset=one_of("preset", name, list(PRESETS))).set_params(**changes)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, and those settings that are given."""
        fixed = set(NERVE._get_param_names()) - set(self._get_param_names())  # by a derived class
        return {
            name: value
            for name, value in vars(self).items()
            if name.strip("_") == name and name not in fixed
        }

    def set_params(self, **params: Any) -> Self:
        """Any parameter or setting, given before or not."""
        check_names(params, sorted({*self.get_params(), *NerveConfig.model_fields}), self.title)
        self.__dict__.update(params)
        return self

    def config(self) -> NerveConfig:
        """All settings: those of the preset, with what is given over them."""
        given = {
            name: value
            for name, value in self.get_params().items()
            if name not in ("parcellation", "preset")
        }
        if self.patching is None or isinstance(self.patching, Patching):
            given.pop("patching", None)
        return resolve(self.preset, given, where=self.title)

    @property
    def view(self) -> str:  # type: ignore[override]
        """The view of FC that is cut into patches: as given, or the preset's."""
        return self.config().view

    def check_settings(self) -> None:
        """Refuse settings that do not exist or cannot be."""
        self.config()

    # ---- what the base asks for

    def build(self, parcellation: Parcellation) -> MaskedAutoencoder:
        """The untrained model for the regions of a parcellation."""
        self.config_ = self.config()
        self.patching_ = self._patching(parcellation)
        return MaskedAutoencoder(self.patching_, **self.config_.model_options())

    def training_settings(self) -> TrainingSettings:
        """How it is trained."""
        return self.config().training_settings()

    def source(self, cohort: Cohort) -> Dataset:
        """Packed matrices of a view that is fitted on everyone given to `fit`, for the reason in `set_components`."""
        config, self.shifts_, self.adapted_ = self.config(), None, ""
        sites = None if config.recentre is None else sites_of(cohort, config.recentre)
        self.view_ = fit_view(make_view(config.view, config.n_directions), cohort)
        self.signature_ = Signature.of(cohort)
        source = PackingSource(cohort, self.patching_, self.view_)
        if sites is not None:
            self.shifts_ = SiteShifts.of(source.viewed.matrices, sites)
            source.recentre(self.shifts_, sites)
        return source

    def prepare(self, module: Any, source: Dataset, rows: np.ndarray) -> None:
        """Mean and size of the entries, where the configuration asks for them.

        Of everyone where fewer than ten are held out: the view and the signature are everyone's, and from them and the
        mean of the others the few could be told.
        """
        rows = np.arange(len(source)) if len(source) - len(rows) < FEWEST else rows
        module.fit_standardisation(
            source.batch(np.sort(rows[some])) for some in chunks(len(rows), _AT_A_TIME)
        )

    def finish(self, module: Any, source: Dataset) -> None:
        """Components of what sets the tokens of everyone given to `fit` apart from those of the mean, for ``pca``."""
        if module.components is not None:
            module.fit_origin(mean_sample(source, self.looked_at(len(source))))
            self.set_components(module, module.centred_tokens, source)

    def _patching(self, parcellation: Parcellation) -> Patching:
        if isinstance(self.patching, Patching):
            if self.patching.n_regions != parcellation.n_regions:
                found = f"it groups {self.patching.n_regions} regions"
                raise problem(
                    "patching",
                    found,
                    expected=f"the {parcellation.n_regions} of {parcellation.name}",
                )
            return self.patching
        name = self.config().patching
        if name == "networks" and parcellation.n_networks == 1 and parcellation.name == "unnamed":
            text = "No parcellation is given: consecutive regions are grouped by sixteens."
            warnings.warn(
                f"{text} Give parcellation= to group them by network.", NerveWarning, stacklevel=2
            )
            name = "grid16"
        return patching_for(parcellation, name)

    # ---- verbs

    def packing(self, X: Any) -> PackingSource:
        """The data as the model reads them: in its region order, its view and its patches, with sites recentred."""
        cohort = self.fitted_cohort(X)
        source = PackingSource(cohort, self.patching_, self.view_)
        if self.shifts_ is not None:
            sites = sites_of(cohort, str(self.config().recentre))
            self.adapted_ = UNSEEN if self.shifts_.unseen(sites) else self.adapted_
            source.recentre(self.shifts_, sites)
        return source

    def transform(self, X: Any, pooling: str | None = None) -> np.ndarray:
        """Representations of the same participants in the same order.

        Parameters
        ----------
        X : Cohort or (n, R, R) array
            A cohort may have its regions in another order; one that lacks a region or network is refused by name.
        pooling : {"pca", "mean", "cls", "tokens"}, optional
            As in the configuration by default.

        Returns
        -------
        (n, n_components) array for ``pca``, (n, patches, dim) for ``tokens``, in the order of `patching_.pairs`, else
        (n, dim)
        """
        chosen = one_of("pooling", self.config().pooling if pooling is None else pooling, POOLINGS)
        source = self.packing(X)
        return checked_embeddings(self._embedded(source, chosen), source.cohort)

    def embed_matrices(self, matrices: np.ndarray) -> np.ndarray:
        """Representations of matrices that are in the model's view and region order already: (n, R, R) → (n, …)."""
        packed = self.patching_.pack(np.asarray(matrices, np.float32))
        return self._embedded(ArrayDataset(packed), self.config().pooling)

    def _embedded(self, source: Dataset, pooling: str) -> np.ndarray:
        return self.apply(lambda packed: self.module_.embed(packed, pooling), source)

    def reconstruct(self, X: Any, masked: np.ndarray | None = None) -> np.ndarray:
        """The matrices of the view (FC itself, for ``fc``) as the model predicts them from the visible patches.

        Parameters
        ----------
        X : Cohort or (n, R, R) array
        masked : (n, K) array of int, optional
            Patches to hide from the model, for each participant; none by default.

        Returns
        -------
        (n, R, R) array, in the region order of `parcellation_`
        """
        source = self.packing(X)
        return self.patching_.unpack(self.apply(self.module_.reconstruct, source, masked))

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the reconstruction loss of masked patches, with masks fixed by the seed: larger is better."""
        source, module = self.packing(X), self.module_
        noise = Draws(self.seed, VALIDATION_STEP, len(source)).uniform(self.patching_.n_patches)

        def verb(packed: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
            # a batch's mean counts once for each of its participants
            return module.masked_loss(packed, *module.choose_masks(uniform)).expand(len(packed))

        return -float(self.apply(verb, source, noise.numpy()).mean(dtype=float))

    @property
    def n_features(self) -> int:
        """Components, or the width of the encoder."""
        config = self.config()
        return config.n_components if config.pooling == "pca" else config.dim

    # ---- files

    def tensors(self) -> dict[str, torch.Tensor]:
        """Weights and buffers, and the arrays of the view, of the sites and of the signature."""
        arrays = {f"view.{name}": array for name, array in self.view_.arrays.items()}
        if self.shifts_ is not None:
            arrays |= {"sites.common": self.shifts_.common, "sites.shifts": self.shifts_.shifts}
        if self.signature_ is not None:
            arrays["signature.mean"] = self.signature_.mean
        return super().tensors() | {name: torch.from_numpy(array) for name, array in arrays.items()}

    def state(self) -> dict[str, Any]:
        """With what the training cohort looked like, and its sites where they are recentred."""
        numbers = None if self.signature_ is None else self.signature_.numbers()
        sites = {} if self.shifts_ is None else {"sites": dict(self.shifts_.sizes)}
        return {**super().state(), "signature": numbers, **sites}

    def card_lines(self) -> list[str]:
        """With the sites."""
        return [
            *super().card_lines(),
            *card_lines({} if self.shifts_ is None else self.shifts_.sizes),
        ]

    def restore(self, saved: Saved) -> None:
        """The arrays of view, sites and signature, then the module."""
        (folder, config, tensors), settings, regions = (
            saved,
            self.config(),
            self.parcellation_.n_regions,
        )
        self.view_, self.signature_ = make_view(settings.view, settings.n_directions), None
        shapes = {f"view.{name}": shape for name, shape in self.view_.shapes(regions).items()}
        if settings.recentre is not None:
            shapes |= {
                "sites.common": (regions, regions),
                "sites.shifts": (len(config["sites"]), regions, regions),
            }
        if "signature.mean" in tensors:
            shapes["signature.mean"] = (regions * (regions - 1) // 2,)
        names = [name for name in tensors if name.startswith(("view.", "sites.", "signature."))]
        arrays = {name: tensors.pop(name).numpy() for name in names}
        check_array_shapes(arrays, shapes, folder / WEIGHTS)
        self.view_.arrays = {name: arrays[f"view.{name}"] for name in self.view_.shapes(regions)}
        if settings.recentre is not None:
            sizes = {site: int(n) for site, n in config["sites"].items()}
            self.shifts_ = SiteShifts(sizes, arrays["sites.common"], arrays["sites.shifts"])
        if "signature.mean" in arrays:
            self.signature_ = Signature.saved(
                arrays["signature.mean"], config.get("signature"), folder / CONFIG
            )
        super().restore(saved)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: str = "auto",
        tokenizer: type[Tokenizer] | None = None,
    ) -> Self:
        """Read what `save` wrote. A newer format, missing file or changed shape is refused by name.

        Parameters
        ----------
        path : path
        device : str
            Where to compute.
        tokenizer : class, optional
            The class of a tokenizer of your own: no code is ever imported because a file names it.
        """
        config = read_configuration(path)
        parameters = config["parameters"] = dict(config.get("parameters", {}))
        named = str(parameters.get("tokenizer"))
        if tokenizer is not None:
            if tokenizer_name(tokenizer) != named:
                raise problem(
                    path,
                    f"its tokenizer is {named}",
                    expected=f"{tokenizer_name(tokenizer)}, as given",
                )
            parameters["tokenizer"] = tokenizer
        elif ":" in named:
            expected = f"one of {', '.join(TOKENIZERS)}, or to be given the class"
            remedy = f"Load it in Python: NERVE.load(folder, tokenizer={named.rpartition(':')[2]})."
            raise problem(path, f"its tokenizer is {named}", expected=expected, remedy=remedy)
        return cls.from_files(Path(path), config, device)

    @classmethod
    def from_pretrained(cls, model: str | os.PathLike[str], *, device: str = "auto") -> Self:
        """A trained model from a folder, an archive (`nerve pack`) or a name of `nerve models list`."""
        with located(model) as folder:
            return cls.load(folder, device=device)

    def likeness(self, X: Any) -> Likeness:
        """How like the training cohort these data look, with a sentence per clear difference (`quality.likeness`)."""
        cohort = self.fitted_cohort(X)
        if self.signature_ is None:
            return Likeness("not compared: the model keeps no signature of its training cohort")
        return likeness(self.signature_, cohort)

    @classmethod
    def from_configuration(cls, config: dict[str, Any]) -> Self:
        """Every setting of the file, whatever its preset says now."""
        parameters = dict(config["parameters"])
        if isinstance(parameters.get("patching"), dict):
            parameters["patching"] = Patching(
                parameters["patching"]["group_of"], parameters["patching"]["group_names"]
            )
        return cls.from_preset(parameters.pop("preset"), **parameters)

    @classmethod
    def differences(cls, parameters: Mapping[str, Any], preset: str) -> dict[str, Any]:
        """As in the base; groups of the user's own are counted, not listed."""
        found = super().differences(parameters, preset)
        if isinstance(found.get("patching"), Mapping):
            found["patching"] = f"own groups ({len(found['patching']['group_names'])})"
        return found

    def described_parameters(self) -> dict[str, Any]:
        """The preset's name for the reader, and every setting resolved, so that presets may change later."""
        settings = self.config().model_dump(
            mode="json", exclude={"device", "compile", "checkpoint_seconds"}
        )
        if settings["recentre"] is None:
            del settings["recentre"]
        patching = self.patching
        if isinstance(patching, str) and not is_patching_name(patching):
            patching = getattr(
                self, "patching_", patching
            )  # the groups: the path of a table means nothing to others
        if isinstance(patching, Patching):
            groups = {
                "group_of": patching.group_of.tolist(),
                "group_names": list(patching.group_names),
            }
            settings["patching"] = groups
        return {"preset": self.preset, **settings}
