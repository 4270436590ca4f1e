"""NERVE as a scikit-learn estimator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from nerve.checks import NerveWarning, naming, one_of, problem
from nerve.cohort import Cohort
from nerve.components import principal_components, turned
from nerve.methods.base import CONFIG, WEIGHTS, Role, read_configuration
from nerve.methods.config import PRESETS, NerveConfig, resolve, tokenizer_name
from nerve.methods.outputs import checked_embeddings
from nerve.methods.packing import Chosen, Masked, PackingSource, packed_source, patching_for, remove_packed
from nerve.methods.pretrained import located
from nerve.methods.recentring import UNSEEN, SiteShifts, card_lines, saved_sizes, sites_of
from nerve.methods.references import chunks
from nerve.methods.settings import check_names
from nerve.methods.trained import Encoder
from nerve.models.masked_autoencoder import POOLINGS, MaskedAutoencoder
from nerve.models.tokenizers import TOKENIZERS, Tokenizer
from nerve.parcellation import Parcellation, load_parcellation
from nerve.patching import Patching
from nerve.quality.likeness import Likeness, Signature, likeness
from nerve.training import ArraySource, Draws, Source, TrainingSettings
from nerve.training.draws import VALIDATION_STEP
from nerve.training.sources import check_numbers
from nerve.views import View, checked_arrays, make_view

_AT_A_TIME = 512  # participants read together for the mean
_LOOKED_AT = 2048  # participants, at most, from whom the components of `pooling="pca"` come
_SIGNATURE = "signature.mean"  # the group mean of the training cohort, in the file of weights
_VIEW, _SITES = "view.", "sites."  # before the names of the arrays of view and sites, in the file of weights


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
    view : {"fc", "tangent", "shrunk"}, optional
        The matrix that is cut into patches (see `nerve.views`); one other than ``fc`` is not the paper's.
    recentre : str, optional
        Column of the participants table, the site: in the view, the mean of each site is carried to the common mean,
        and that of a site that was not trained on by its own participants (`nerve.methods.recentring`). Not for ``fc``.
    tokenizer : {"bilinear", "shared", "specific"} or a class derived from `nerve.models.Tokenizer`, optional
    mask_ratio : float, optional
    dim, depth : int, optional
        Width and layers of the encoder.
    epochs, batch_size : int, optional
    lr : float, optional
    pooling : {"pca", "mean", "cls", "tokens"}, optional
        What `transform` returns: principal components of the patch tokens, their mean, the CLS token, or all of them.
    seed : int
        Fixes initial weights, split, data order and masks.
    device : str
        ``auto``, ``cpu``, ``cuda`` …
    options : dict, optional
        Any setting of `nerve.methods.config.NerveConfig` that is not above.

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
    >>> encoder = NERVE(patching="grid8", preset="small", dim=16, epochs=2, device="cpu", options={"n_components": 8})
    >>> encoder.fit(fc).transform(fc).shape
    (12, 8)
    >>> encoder.transform(fc, pooling="tokens").shape, encoder.patching_.n_patches
    ((12, 10, 16), 10)
    """

    title: ClassVar[str] = "NERVE"
    role: ClassVar[Role] = "self-supervised"
    paper = "NERVE: network-aware bilinear tokenization for brain functional connectivity representation learning"
    presets = PRESETS
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
        view: str | None = None,
        recentre: str | None = None,
        tokenizer: str | type[Tokenizer] | None = None,
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
        self.view = view
        self.recentre = recentre
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
        one_of("preset", name, list(PRESETS))
        own = set(cls._get_param_names()) - {"options", "preset"}
        check_names(changes, sorted(own | set(NerveConfig.model_fields)), cls.title)
        options = {setting: value for setting, value in changes.items() if setting not in own}
        return cls(preset=name, options=options or None, **{key: changes[key] for key in changes if key in own})

    def config(self) -> NerveConfig:
        """All settings: those of the preset, with what is given, as a parameter or in `options`, over them."""
        parameters = {name: value for name, value in self.get_params(deep=False).items() if value is not None}
        if isinstance(self.patching, Patching):
            del parameters["patching"]
        given = {name: value for name, value in parameters.items() if name in NerveConfig.model_fields}
        options = self.options or {}
        if not isinstance(options, dict):
            raise problem("NERVE", f"options is {options!r}", expected="a dict of settings")
        twice = sorted(set(options) & set(self._get_param_names()))
        if twice:
            raise problem("NERVE", f"options hold {', '.join(twice)}", expected="a parameter, NERVE(…=…)")
        return resolve(self.preset, options | given, where=self.title)

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

    def begin_training(self, cohort: Cohort, rows: np.ndarray, folder: Path | None = None) -> Source:
        """The view first, which decides what is packed; from everyone given to `fit`, for the reason in `finish`."""
        config = self.config()
        self.view_ = make_view(config.view, config.n_directions)
        if config.recentre is not None:
            sites_of(cohort, config.recentre)  # or it is refused, before anything is computed
        for some in chunks(len(cohort)) if self.view_.name != "fc" else ():  # FC itself is checked when it is packed
            check_numbers(cohort.inputs("fc", some), cohort, some)
        self.signature_ = Signature.of(cohort)
        with naming(cohort.participants["participant_id"].to_numpy(object)):
            self.view_.fit(cohort.connectivity)
        return super().begin_training(cohort, rows, folder)

    def source(self, cohort: Cohort, run_dir: Path | None = None) -> Source:
        """Packed matrices, made once; recentred by the shifts of these participants."""
        column, self.shifts_, self.adapted_ = self.config().recentre, None, ""
        if column is not None:
            viewed = self.packing(cohort).viewed
            viewed.keep()  # it is read twice
            self.shifts_ = SiteShifts.of(viewed.matrices, sites_of(cohort, column))
        return packed_source(self.packing(cohort), run_dir)

    def prepare(self, module: torch.nn.Module, source: Source, rows: np.ndarray) -> None:
        """Mean and size of the entries, where the configuration asks for them."""
        assert isinstance(module, MaskedAutoencoder)
        module.standardise_by(_batches(source, rows))

    def finish(self, module: torch.nn.Module, source: Source) -> None:
        """Components of what sets the tokens of everyone given to `fit` apart, for ``pca``.

        Of validation participants too: among fewer participants than numbers, those whom the components have not seen
        come out shorter than the others, and a kernel between the two kinds is distorted. Not centred: the mean matrix
        is the origin. Centred, the numbers of all would sum to zero, and who is tested be known from the others.
        """
        if not isinstance(module, MaskedAutoencoder) or module.components is None:
            return
        chosen = np.sort(np.random.default_rng([self.seed, 6]).permutation(len(source))[:_LOOKED_AT])
        sums = [batch.sum(0, dtype=torch.float64) for batch in _batches(source, chosen)]
        module.set_origin((torch.stack(sums).sum(0) / len(chosen)).float())
        apart = self.apply(module.apart, Chosen(source, chosen))  # (participants, P · dim)
        width = module.components.shape[1]
        components = principal_components(apart, width - 1, center=False)[1]
        with torch.no_grad():
            module.components.copy_(torch.from_numpy(turned(components, width)))

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
        remove_packed(None if run_dir is None else Path(run_dir))
        return self

    def packing(self, X: Any) -> PackingSource:
        """The data as the model reads them: in its region order, its view and its patches, with sites recentred."""
        cohort, column = self.fitted_cohort(X), self.config().recentre
        if self.shifts_ is None or column is None:
            return PackingSource(cohort, self.patching_, self.view_)
        self.adapted_ = UNSEEN if self.shifts_.unseen(sites_of(cohort, column)) else self.adapted_
        return PackingSource(cohort, self.patching_, self.view_, (self.shifts_, column))

    def transform(self, X: Any, pooling: str | None = None, *, progress: bool = False) -> np.ndarray:
        """Representations of the same participants in the same order.

        Parameters
        ----------
        X : Cohort or (n, R, R) array
            A cohort may have its regions in another order; one that lacks a region or network is refused by name.
        pooling : {"pca", "mean", "cls", "tokens"}, optional
            As in the configuration by default.
        progress : bool
            Show progress on standard error.

        Returns
        -------
        (n, n_components) array for ``pca``, (n, patches, dim) for ``tokens``, in the order of `patching_.pairs`, else
        (n, dim)
        """
        source, module = self.packing(self.fitted_cohort(X)), self._module()
        chosen = self.config().pooling if pooling is None else one_of("pooling", pooling, POOLINGS)
        values = self.apply(lambda packed: module.embed(packed, chosen), source, progress)
        return checked_embeddings(values, source.cohort)

    def embed_matrices(self, matrices: np.ndarray) -> np.ndarray:
        """Representations of matrices that are in the model's view and region order already: (n, R, R) → (n, …)."""
        module, pooling = self._module(), self.config().pooling
        packed = self.patching_.pack(np.asarray(matrices, np.float32))
        return self.apply(lambda batch: module.embed(batch, pooling), ArraySource(packed))

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
        source, module = self.packing(self.fitted_cohort(X)), self._module()
        if masked is None:
            return self.patching_.unpack(self.apply(module.reconstruct, source))
        hidden = Masked(source, np.asarray(masked))
        return self.patching_.unpack(self.apply(lambda batch: module.reconstruct(*batch), hidden))

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the reconstruction loss of masked patches, with masks fixed by the seed: larger is better."""
        source, module = self.packing(self.fitted_cohort(X)), self._module()
        noise = Draws(self.seed, VALIDATION_STEP, len(source)).uniform(self.patching_.n_patches)

        def verb(batch: Any) -> torch.Tensor:
            packed, uniform = batch  # a batch's mean counts once for each of its participants
            return module.masked_loss(packed, *module.split(uniform)).expand(len(packed))

        return -float(self.apply(verb, Masked(source, noise.numpy())).mean(dtype=float))

    def _module(self) -> MaskedAutoencoder:
        assert isinstance(self.module_, MaskedAutoencoder)
        return self.module_

    @property
    def n_features(self) -> int:
        """Components, or the width of the encoder."""
        config = self.config()
        return config.n_components if config.pooling == "pca" else config.dim

    def target_parcellation(self) -> Parcellation | None:
        """The parameter, as an object."""
        return None if self.parcellation is None else load_parcellation(self.parcellation)

    def label(self) -> str:
        """With the view of the preset where none is given."""
        view = self.config().view
        return self.title if view == "fc" else f"{self.title}, {view} view"

    # ---- files

    def tensors(self) -> dict[str, torch.Tensor]:
        """Weights and buffers, and the arrays of the view and of the sites."""
        arrays = {_VIEW + name: torch.from_numpy(array) for name, array in self.view_.arrays.items()}
        if self.shifts_ is not None:
            moved = {"common": self.shifts_.common, "shifts": self.shifts_.shifts}
            arrays |= {_SITES + name: torch.from_numpy(array) for name, array in moved.items()}
        if self.signature_ is not None:
            arrays[_SIGNATURE] = torch.from_numpy(self.signature_.mean)
        return super().tensors() | arrays

    def configuration(self) -> dict[str, Any]:
        """With what the training cohort looked like, and its sites where they are recentred."""
        numbers = None if self.signature_ is None else self.signature_.numbers()
        sites = {} if self.shifts_ is None else {"sites": dict(self.shifts_.sizes)}
        return {**super().configuration(), "signature": numbers, **sites}

    def card_lines(self) -> list[str]:
        """With the sites."""
        return [*super().card_lines(), *card_lines({} if self.shifts_ is None else self.shifts_.sizes)]

    def restore(self, tensors: dict[str, torch.Tensor], folder: Path) -> None:
        """The arrays of view and sites and the signature, then the module."""
        self.signature_ = None
        if _SIGNATURE in tensors:
            n_pairs = self.parcellation_.n_regions * (self.parcellation_.n_regions - 1) // 2
            mean = checked_arrays({_SIGNATURE: tensors.pop(_SIGNATURE).numpy()}, {_SIGNATURE: (n_pairs,)}, folder)
            numbers = read_configuration(folder).get("signature")
            self.signature_ = Signature.saved(mean[_SIGNATURE], numbers, folder / CONFIG)
        own = {name: tensor for name, tensor in tensors.items() if not name.startswith((_VIEW, _SITES))}
        self.view_ = make_view(self.config().view)
        shapes = self.view_.shapes(self.parcellation_.n_regions)
        self.view_.arrays = checked_arrays(_named(tensors, _VIEW), shapes, folder / WEIGHTS)
        self.shifts_ = self._saved_shifts(_named(tensors, _SITES), folder)
        super().restore(own, folder)

    def _saved_shifts(self, arrays: dict[str, np.ndarray], folder: Path) -> SiteShifts | None:
        if self.config().recentre is None:
            checked_arrays(arrays, {}, folder / WEIGHTS)
            return None
        sizes = saved_sizes(read_configuration(folder).get("sites"), folder / CONFIG)
        matrix = (self.parcellation_.n_regions, self.parcellation_.n_regions)
        checked_arrays(arrays, {"common": matrix, "shifts": (len(sizes), *matrix)}, folder / WEIGHTS)
        return SiteShifts(sizes, arrays["common"], arrays["shifts"])

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, device: str = "auto", tokenizer: type[Tokenizer] | None = None
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
        if tokenizer is not None and tokenizer_name(tokenizer) != named:
            raise problem(path, f"its tokenizer is {named}", expected=f"{tokenizer_name(tokenizer)}, as given")
        if tokenizer is None and ":" in named:
            raise problem(
                path,
                f"its tokenizer is {named}",
                expected=f"one of {', '.join(TOKENIZERS)}, or to be given the class",
                remedy=f"Load it in Python: NERVE.load(folder, tokenizer={named.rpartition(':')[2]}).",
            )
        if tokenizer is not None:
            parameters["tokenizer"] = tokenizer
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
            parameters["patching"] = Patching(parameters["patching"]["group_of"], parameters["patching"]["group_names"])
        return cls.from_preset(parameters.pop("preset"), **parameters)

    def described_parameters(self) -> dict[str, Any]:
        """The preset's name for the reader, and every setting resolved, so that presets may change later."""
        left_out = {"device", "compile", "checkpoint_seconds"} | (
            {"recentre"} if self.config().recentre is None else set()
        )
        described = {"preset": self.preset, **self.config().model_dump(mode="json", exclude=left_out)}
        if isinstance(self.patching, Patching):
            groups = {"group_of": self.patching.group_of.tolist(), "group_names": list(self.patching.group_names)}
            described["patching"] = groups
        return described


def _named(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, without it."""
    return {name.removeprefix(prefix): one.numpy() for name, one in tensors.items() if name.startswith(prefix)}


def _batches(source: Source, rows: np.ndarray) -> Iterator[torch.Tensor]:
    """The participants of some rows, some at a time."""
    for begin in range(0, len(rows), _AT_A_TIME):
        yield source.batch(np.sort(rows[begin : begin + _AT_A_TIME]))
