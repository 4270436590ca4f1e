"""NERVE as a scikit-learn estimator, around the model of `nerve.core`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, PlainValidator

from nerve._utils.errors import NerveWarning, one_of, problem
from nerve._utils.linalg import principal_components, rotate_to_zero_sum
from nerve.core.masked_autoencoder import POOLINGS, MaskedAutoencoder
from nerve.core.patching import Patching
from nerve.core.randomness import VALIDATION_STEP, Draws
from nerve.core.tokenizers import TOKENIZERS, Tokenizer
from nerve.core.training import ArrayDataset, Dataset, EpochCallback, TrainingSettings
from nerve.core.views import N_DIRECTIONS, TangentView, View, check_arrays, make_view
from nerve.data.cohort import Cohort
from nerve.data.named_patchings import is_patching_name, patching_for
from nerve.data.parcellation import Parcellation
from nerve.data.quality.likeness import FEWEST, Likeness, Signature, likeness
from nerve.methods.base import WEIGHTS, SavedModel, checked_features, class_name
from nerve.methods.configuration import CONFIG, read_configuration
from nerve.methods.hub import HubMixin
from nerve.methods.inputs import chunks
from nerve.methods.packing import PatchDataset, fit_view, packed_dataset
from nerve.methods.parameters import (
    Count,
    Device,
    Epochs,
    Factor,
    LayersOrNone,
    NotNegative,
    Part,
    Positive,
    Seed,
    Share,
    Width,
    plain,
)
from nerve.methods.pretrained import located
from nerve.methods.recentring import (
    UNSEEN_COHORTS,
    UNSEEN_SITES,
    CohortMeans,
    SiteShifts,
    is_by_cohort,
    site_card_lines,
    sites_of,
)
from nerve.methods.trained import Encoder, mean_sample

if TYPE_CHECKING:
    from nerve.methods.finetuned import FineTunedNERVE

PRESETS: dict[str, dict[str, Any]] = {
    # half of the paper's layers, on another view of FC: minutes on two CPU cores; chosen on ABIDE
    "default": {},
    # the paper's text, and its released code where the text is silent
    "paper": {
        "view": "fc",
        "depth": 4,
        "init": "released",
        "standardise": False,
        "tokenizer_bias": True,
        "pooling": "mean",
        "epochs": 4000,
        "batch_size": 1024,
        "equal_batches": False,
        "lr": 0.01,
        "weight_decay": 0.01,
        "betas": (0.9, 0.98),
        "eps": 1e-6,
        "warmup_epochs": 400,
        "warmup": "steps_from_zero",
        "clip": 1.0,
        "validation_fraction": 0.1,
    },
    # the default, narrower
    "small": {"dim": 64},
}

_PARTICIPANTS_AT_A_TIME = 512  # read together for the standardisation of entries
_MOST_FOR_COMPONENTS = 2048  # participants, at most, that components are computed from


def _checked_tokenizer(value: Any) -> str | type[Tokenizer]:
    """The name of a tokenizer of the package, or the class of another one."""
    if isinstance(value, str):
        return one_of("tokenizer", value, list(TOKENIZERS))
    if isinstance(value, type) and issubclass(value, Tokenizer):
        for name, cls in TOKENIZERS.items():
            if value is cls:
                return name
        return value
    names = ", ".join(TOKENIZERS)
    raise ValueError(f"one of {names}, or a class derived from nerve.core.Tokenizer")


def _checked_patching(value: Any) -> str | Patching:
    if isinstance(value, str | Patching):
        return value
    raise ValueError("networks, grid16, permuted0, the name of an atlas, or a Patching")


TokenizerChoice = Annotated[Any, PlainValidator(_checked_tokenizer)]
PatchingChoice = Annotated[Any, PlainValidator(_checked_patching)]


class NERVE(HubMixin, Encoder):
    """Network-aware representations of functional connectivity by bilinear tokenization.

    A view of FC (FC itself, in the paper) is cut into one patch for each pair of networks, each
    patch becomes a token, half of the tokens are masked, a transformer encodes the others and a
    light decoder reconstructs the masked patches. The representation of a participant is made from
    the encoder's tokens with nothing masked.

    The defaults are the preset ``default``. `NERVE.from_preset` makes the others: ``paper``, the
    paper's settings, and ``small``.

    Parameters
    ----------
    parcellation : Parcellation or str, optional
        Regions and networks to work in; by default those of the cohort.
    view : {"fc", "tangent", "shrunk"}
        The matrix that is cut into patches: fc (the paper), tangent or shrunk.
    n_directions : int
        Directions that the view shrunk keeps, at most.
    recentre : str, optional
        Column of sites to recentre, or cohort, or cohort+COLUMN; not with the view fc.
    patching : str or Patching
        networks, grid16 (any size), permuted0 (any seed), or an atlas for its networks.
    tokenizer : str or type
        How patches become tokens: bilinear, shared or specific.
    mask_ratio : float
        Share of the patches that is masked.
    dim : int
        Width of the encoder.
    depth : int
        Layers of the encoder.
    heads : int
        Attention heads of the encoder.
    decoder_dim : int
        Width of the decoder.
    decoder_depth : int
        Layers of the decoder.
    decoder_heads : int
        Attention heads of the decoder.
    loss : {"patch_mean", "sum"}
        Mean or sum over a patch's entries.
    init : {"scaled", "released", "signs"}
        How weights are drawn.
    standardise : bool
        Subtract the training mean of each entry, then divide all by one number.
    tokenizer_bias : bool
        Biases in shared and specific tokenizers, as released.
    pooling : {"pca", "mean", "cls", "tokens"}
        The representation: components of the tokens, their mean, the CLS token, or all tokens.
    n_components : int
        Numbers of the pooling pca.
    epochs : int
        Passes over the training participants; 0: none, a control.
    max_steps : int, optional
        Stop after this many steps, whatever `epochs` says.
    batch_size : int
        Participants per step, in all processes together.
    equal_batches : bool
        Batches of equal size, none above batch_size; False: full ones, then a smaller last one.
    optimizer : {"adamw", "adam", "sgd"}
        Which optimiser.
    lr : float
        Largest learning rate.
    min_lr : float
        Learning rate at the end of the schedule.
    weight_decay : float
        Weight decay, on every parameter.
    betas : tuple of two floats
        Momenta of Adam and AdamW.
    eps : float
        Stabiliser of Adam and AdamW.
    momentum : float
        Momentum of SGD.
    schedule : {"cosine", "constant", "step"}
        After the warm-up.
    warmup_epochs : float
        Epochs of linear warm-up.
    warmup : {"steps", "steps_from_zero", "epochs"}
        How it rises: at every step, at every step from lr 0 on, or at every epoch.
    decay_epochs : int
        Schedule `step`: epochs between two cuts.
    decay_factor : float
        Schedule `step`: factor of a cut.
    clip : float, optional
        Largest norm of the gradient; none to leave it.
    validation_fraction : float
        Share of each cohort held out for validation.
    validate_every : int
        Epochs between two validations.
    keep : {"best", "last"}
        Weights at the end: of least validation loss, or last.
    precision : {"auto", "float32", "bf16", "fp16"}
        auto: bf16 or fp16 autocast on CUDA, float32 on CPU.
    compile : bool
        Use torch.compile.
    checkpoint_seconds : float
        Seconds between checkpoints; 0 for every step.
    seed : int
        Fixes initial weights, split, data order, masks and dropout.
    device : str
        auto, cpu, cuda, cuda:1, mps.

    Attributes
    ----------
    module_ : MaskedAutoencoder
        The trained model.
    patching_ : Patching
        The patches, in the order of the tokens.
    view_ : View
        Fitted on all participants given to `fit`.
    shifts_ : SiteShifts or None
        Of each site, where `recentre` is a column.
    means_ : CohortMeans or None
        Of each cohort, where `recentre` is by cohort.
    parcellation_ : Parcellation
        The regions, in the order of the model.
    history_ : DataFrame
        One row per epoch.

    Notes
    -----
    Cohorts are brought into the order of `parcellation` by label; arrays must be in it. An array
    without a parcellation has no networks: consecutive regions are then grouped by sixteens.

    `recentre` is explained in `nerve.methods.recentring`. A column: each site is shifted in the
    view so that its mean becomes the common mean. ``cohort``: each cohort is whitened by its own
    mean FC; ``cohort+site``: each site (a column) within its cohort.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fc = np.stack([np.corrcoef(x) for x in rng.normal(size=(12, 32, 50))])
    >>> encoder = NERVE(patching="grid8", dim=16, epochs=2, device="cpu", n_components=8)
    >>> encoder.fit(fc).transform(fc).shape
    (12, 8)
    >>> encoder.transform(fc, pooling="tokens").shape, encoder.patching_.n_patches
    ((12, 10, 16), 10)
    >>> NERVE.from_preset("paper", epochs=10).lr
    0.01
    """

    title: ClassVar[str] = "NERVE"
    citation: ClassVar[str] = (
        "NERVE: network-aware bilinear tokenization for brain functional connectivity "
        "representation learning"
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS
    batch_size_apply: ClassVar[int] = 64  # larger batches gain nothing on a CPU and spill its cache

    patching_: Patching
    view_: View
    shifts_: SiteShifts | None = None
    means_: CohortMeans | None = None
    signature_: Signature | None  # of the training cohort, where it had ten participants

    def __init__(
        self,
        parcellation: Parcellation | str | None = None,
        *,
        view: Literal["fc", "tangent", "shrunk"] = "shrunk",
        n_directions: Width = N_DIRECTIONS,
        recentre: str | None = None,
        patching: PatchingChoice = "networks",
        tokenizer: TokenizerChoice = "bilinear",
        mask_ratio: Part = 0.5,
        dim: Width = 256,
        depth: LayersOrNone = 2,
        heads: Width = 4,
        decoder_dim: Width = 64,
        decoder_depth: LayersOrNone = 1,
        decoder_heads: Width = 2,
        loss: Literal["patch_mean", "sum"] = "patch_mean",
        init: Literal["scaled", "released", "signs"] = "signs",
        standardise: bool = True,
        tokenizer_bias: bool = False,
        pooling: Literal["pca", "mean", "cls", "tokens"] = "pca",
        n_components: Annotated[int, Field(ge=2, le=65536)] = 256,
        epochs: Epochs = 3,
        max_steps: Count | None = None,
        batch_size: Count = 16,
        equal_batches: bool = True,
        optimizer: Literal["adamw", "adam", "sgd"] = "adamw",
        lr: Positive = 3e-4,
        min_lr: NotNegative = 0.0,
        weight_decay: NotNegative = 0.0,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: Positive = 1e-6,
        momentum: Share = 0.9,
        schedule: Literal["cosine", "constant", "step"] = "cosine",
        warmup_epochs: NotNegative = 0.5,
        warmup: Literal["steps", "steps_from_zero", "epochs"] = "steps",
        decay_epochs: Count = 20,
        decay_factor: Factor = 0.5,
        clip: Positive | None = 1.0,
        validation_fraction: Share = 0.1,
        validate_every: Count = 1,
        keep: Literal["best", "last"] = "best",
        precision: Literal["auto", "float32", "bf16", "fp16"] = "auto",
        compile: bool = False,
        checkpoint_seconds: NotNegative = 60.0,
        seed: Seed = 0,
        device: Device = "auto",
    ) -> None:
        self.parcellation = parcellation
        self.view = view
        self.n_directions = n_directions
        self.recentre = recentre
        self.patching = patching
        self.tokenizer = tokenizer
        self.mask_ratio = mask_ratio
        self.dim = dim
        self.depth = depth
        self.heads = heads
        self.decoder_dim = decoder_dim
        self.decoder_depth = decoder_depth
        self.decoder_heads = decoder_heads
        self.loss = loss
        self.init = init
        self.standardise = standardise
        self.tokenizer_bias = tokenizer_bias
        self.pooling = pooling
        self.n_components = n_components
        self.epochs = epochs
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.equal_batches = equal_batches
        self.optimizer = optimizer
        self.lr = lr
        self.min_lr = min_lr
        self.weight_decay = weight_decay
        self.betas = betas
        self.eps = eps
        self.momentum = momentum
        self.schedule = schedule
        self.warmup_epochs = warmup_epochs
        self.warmup = warmup
        self.decay_epochs = decay_epochs
        self.decay_factor = decay_factor
        self.clip = clip
        self.validation_fraction = validation_fraction
        self.validate_every = validate_every
        self.keep = keep
        self.precision = precision
        self.compile = compile
        self.checkpoint_seconds = checkpoint_seconds
        self.seed = seed
        self.device = device

    def check_parameters(self, where: str = "") -> dict[str, Any]:
        """Check the parameters against the types in the signature, and that they go together.

        Parameters
        ----------
        where : str
            Where the parameters come from, for the error; the title of the method by default.

        Returns
        -------
        dict
            The parameters as plain values.
        """
        parameters = super().check_parameters(where)
        if self.recentre is not None and self.view == "fc":
            raise problem(
                where or self.title,
                f"recentre is {self.recentre!r} and view is fc",
                expected="the view tangent or shrunk: FC shifted by its site is not FC any more",
                remedy="Set view=tangent, or leave recentre out.",
            )
        return parameters

    def described_parameters(self) -> dict[str, Any]:
        """The parameters as plain JSON; a patching of the user's own is written out as groups."""
        parameters = super().described_parameters()
        if self.recentre is None:
            parameters.pop("recentre", None)
        patching = self.patching
        if isinstance(patching, str) and not is_patching_name(patching):
            # the groups instead of the path of the user's table, which others do not have
            patching = getattr(self, "patching_", patching)
        if isinstance(patching, Patching):
            parameters["patching"] = {
                "group_of": patching.group_of.tolist(),
                "group_names": list(patching.group_names),
            }
        return parameters

    @classmethod
    def differences(cls, parameters: Mapping[str, Any], preset: str) -> dict[str, Any]:
        """The parameters that differ from a preset; own groups are only counted.

        Parameters
        ----------
        parameters : mapping
            What `described_parameters` gives, or `parameters` of config.json.
        preset : str
            One of ``presets``.

        Returns
        -------
        dict
            Plain JSON.
        """
        different = super().differences(parameters, preset)
        if isinstance(different.get("patching"), Mapping):
            n_groups = len(different["patching"]["group_names"])
            different["patching"] = f"own groups ({n_groups})"
        return different

    # What the training asks for

    def build(self, parcellation: Parcellation) -> MaskedAutoencoder:
        """Make the untrained model for the regions of a parcellation."""
        self.patching_ = self._patching(parcellation)
        return MaskedAutoencoder(
            self.patching_,
            self.tokenizer,
            dim=self.dim,
            depth=self.depth,
            heads=self.heads,
            decoder_dim=self.decoder_dim,
            decoder_depth=self.decoder_depth,
            decoder_heads=self.decoder_heads,
            mask_ratio=self.mask_ratio,
            loss=self.loss,
            init=self.init,
            standardise=self.standardise,
            tokenizer_bias=self.tokenizer_bias,
            n_components=self.n_components if self.pooling == "pca" else 0,
        )

    def training_settings(self) -> TrainingSettings:
        """How it is trained: each setting of the loop is a parameter of the same name."""
        settings = {}
        for field in fields(TrainingSettings):
            if field.name != "patience":  # pretraining goes through all its epochs
                settings[field.name] = plain(getattr(self, field.name))
        return TrainingSettings(**settings)

    def training_dataset(self, cohort: Cohort, folder: Path | None) -> Dataset:
        """Fit view, recentring and signature, and pack the matrices.

        They are fitted on all participants given to `fit`, for the reason given in `finish`.

        Parameters
        ----------
        cohort : Cohort
        folder : Path, optional
            Where packed matrices are written that do not fit into memory.

        Returns
        -------
        Dataset
        """
        self.shifts_ = None
        self.means_ = None
        self.adapted_ = ""
        view = make_view(self.view, self.n_directions)
        sites = None
        whitenings = None
        if is_by_cohort(self.recentre) and isinstance(view, TangentView):
            self.means_ = CohortMeans.of(view, cohort, str(self.recentre))
            whitenings, _ = self.means_.whitenings_of(view, cohort, str(self.recentre))
        elif self.recentre is not None:
            sites = sites_of(cohort, self.recentre)
        self.view_ = fit_view(view, cohort, whitenings)
        self.signature_ = Signature.of(cohort)
        dataset = PatchDataset(cohort, self.patching_, self.view_, whitenings)
        if sites is not None:
            self.shifts_ = SiteShifts.of(dataset.viewed.matrices, sites)
            dataset.recentre(self.shifts_, sites)
        return packed_dataset(dataset, folder)

    def prepare_module(self, module: Any, dataset: Dataset, rows: np.ndarray) -> None:
        """Fit the standardisation of entries on the training participants.

        If fewer than ten participants are held out, it is fitted on all. Otherwise the mean of
        these few could be computed from a saved model: the view and the signature are those of all
        participants, and the training mean would be that of the others.

        Parameters
        ----------
        module : MaskedAutoencoder
        dataset : Dataset
        rows : (n_training,)
            Positions of the training participants.
        """
        if len(dataset) - len(rows) < FEWEST:
            rows = np.arange(len(dataset))
        parts = chunks(len(rows), _PARTICIPANTS_AT_A_TIME)
        module.fit_standardisation(dataset.batch(np.sort(rows[places])) for places in parts)

    def finish(self, module: Any, dataset: Dataset) -> None:
        """For the pooling ``pca``: fit the principal components of the tokens.

        They are components of how the tokens of each participant differ from those of the mean
        matrix. Validation participants count too. With fewer participants than numbers,
        participants that the components were not fitted on would get shorter vectors than the
        others, which distorts a kernel between the two groups. The differences are not centred
        again: the scores of these participants would then sum to zero, which would set them apart
        from tested participants.

        Parameters
        ----------
        module : MaskedAutoencoder
        dataset : Dataset
        """
        if module.components is None:
            return
        order = np.random.default_rng([self.seed, 6]).permutation(len(dataset))
        rows = np.sort(order[:_MOST_FOR_COMPONENTS])
        module.fit_origin(mean_sample(dataset, rows))
        tokens = self.apply(module.centred_tokens, dataset, rows=rows)  # (participants, P · dim)
        width = module.components.shape[1]
        components = principal_components(tokens, width - 1, center=False)[1]
        with torch.no_grad():
            module.components.copy_(torch.from_numpy(rotate_to_zero_sum(components, width)))

    def _patching(self, parcellation: Parcellation) -> Patching:
        if isinstance(self.patching, Patching):
            if self.patching.n_regions != parcellation.n_regions:
                raise problem(
                    "patching",
                    f"it groups {self.patching.n_regions} regions",
                    expected=f"the {parcellation.n_regions} of {parcellation.name}",
                )
            return self.patching
        has_no_networks = parcellation.n_networks == 1 and parcellation.name == "unnamed"
        if self.patching == "networks" and has_no_networks:
            warnings.warn(
                "No parcellation is given: consecutive regions are grouped by sixteens. Give "
                "parcellation= to group them by network.",
                NerveWarning,
                stacklevel=2,
            )
            return patching_for(parcellation, "grid16")
        return patching_for(parcellation, self.patching)

    # Use

    def dataset(self, cohort: Cohort) -> PatchDataset:
        """A cohort as the model reads it: in its view and patches, and recentred.

        `adapted_` says so if cohorts or sites are recentred that were not trained on.

        Parameters
        ----------
        cohort : Cohort
            In the region order of the model.

        Returns
        -------
        PatchDataset
        """
        whitenings = None
        if self.means_ is not None and isinstance(self.view_, TangentView):
            whitenings, has_new = self.means_.whitenings_of(self.view_, cohort, str(self.recentre))
            if has_new:
                self.adapted_ = UNSEEN_COHORTS
        dataset = PatchDataset(cohort, self.patching_, self.view_, whitenings)
        if self.shifts_ is not None:
            sites = sites_of(cohort, str(self.recentre))
            if self.shifts_.has_new_sites(sites):
                self.adapted_ = UNSEEN_SITES
            dataset.recentre(self.shifts_, sites)
        return dataset

    def patch_dataset(self, X: Any) -> PatchDataset:
        """The data as the model reads them: in its region order, view and patches.

        Parameters
        ----------
        X : Cohort, sequence of Cohorts, or (n, R, R) array

        Returns
        -------
        PatchDataset
        """
        return self.dataset(self.align_to_fitted(X))

    def transform(self, X: Any, pooling: str | None = None) -> np.ndarray:
        """Representations of the same participants in the same order.

        Parameters
        ----------
        X : Cohort or (n, R, R) array
            A cohort may have its regions in another order, and more regions; one that lacks a
            region is refused by name.
        pooling : {"pca", "mean", "cls", "tokens"}, optional
            The parameter of the same name by default.

        Returns
        -------
        array
            (n, n_components) for ``pca``, (n, patches, dim) for ``tokens``, in the order of
            `patching_.pairs`, else (n, dim).
        """
        if pooling is None:
            pooling = self.pooling
        pooling = one_of("pooling", pooling, POOLINGS)
        dataset = self.patch_dataset(X)
        return checked_features(self._embedded(dataset, pooling), dataset.cohort)

    def embed_matrices(self, matrices: np.ndarray) -> np.ndarray:
        """Representations of matrices that are in the model's view and region order already.

        Parameters
        ----------
        matrices : (n, R, R) array

        Returns
        -------
        (n, …) array
        """
        packed = self.patching_.pack(np.asarray(matrices, np.float32))
        return self._embedded(ArrayDataset(packed), self.pooling)

    def _embedded(self, dataset: Dataset, pooling: str) -> np.ndarray:
        return self.apply(lambda packed: self.module_.embed(packed, pooling), dataset)

    def reconstruct(self, X: Any, masked: np.ndarray | None = None) -> np.ndarray:
        """The matrices of the view as the model predicts them from the visible patches.

        Parameters
        ----------
        X : Cohort or (n, R, R) array
        masked : (n, K) array of int, optional
            Patches to hide from the model, for each participant; none by default.

        Returns
        -------
        (n, R, R) array
            In the region order of `parcellation_`.
        """
        dataset = self.patch_dataset(X)
        return self.patching_.unpack(self.apply(self.module_.reconstruct, dataset, masked))

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the reconstruction loss of masked patches, with masks fixed by the seed.

        Parameters
        ----------
        X : Cohort or (n, R, R) array
        y : ignored

        Returns
        -------
        float
            Larger is better.
        """
        dataset = self.patch_dataset(X)
        module = self.module_
        draws = Draws(self.seed, VALIDATION_STEP, len(dataset))
        noise = draws.uniform(self.patching_.n_patches)

        def loss(packed: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
            visible, masked = module.choose_masks(uniform)
            # repeated for each participant, so that batches count by their size
            return module.masked_loss(packed, visible, masked).expand(len(packed))

        return -float(self.apply(loss, dataset, noise.numpy()).mean(dtype=float))

    def likeness(self, X: Any) -> Likeness:
        """Compare data with the training cohort: a sentence per clear difference.

        Parameters
        ----------
        X : Cohort or (n, R, R) array

        Returns
        -------
        Likeness
        """
        cohort = self.align_to_fitted(X)
        if self.signature_ is None:
            return Likeness("not compared: the model keeps no signature of its training cohort")
        return likeness(self.signature_, cohort)

    @property
    def n_features(self) -> int:
        """Components, or the width of the encoder."""
        return self.n_components if self.pooling == "pca" else self.dim

    # Files

    def tensors(self) -> dict[str, torch.Tensor]:
        """Weights and buffers, and the arrays of the view, of the sites and of the signature."""
        arrays = {f"view.{name}": array for name, array in self.view_.arrays.items()}
        if self.shifts_ is not None:
            arrays["sites.common"] = self.shifts_.common
            arrays["sites.shifts"] = self.shifts_.shifts
        if self.means_ is not None:
            arrays["sites.whitenings"] = self.means_.whitenings
        if self.signature_ is not None:
            arrays["signature.mean"] = self.signature_.mean
        return super().tensors() | {name: torch.from_numpy(array) for name, array in arrays.items()}

    def state(self) -> dict[str, Any]:
        """Add the numbers of the signature, and the size of each site or cohort recentred."""
        state = super().state()
        state["signature"] = None if self.signature_ is None else self.signature_.numbers()
        if self.shifts_ is not None:
            state["sites"] = dict(self.shifts_.sizes)
        if self.means_ is not None:
            state["sites"] = dict(self.means_.sizes)
        return state

    def card_lines(self) -> list[str]:
        """Add the sites."""
        known = self.shifts_ or self.means_
        sizes = {} if known is None else known.sizes
        return [*super().card_lines(), *site_card_lines(sizes)]

    def restore(self, saved: SavedModel) -> None:
        """Set the arrays of view, sites and signature, then build the module."""
        n_regions = self.parcellation_.n_regions
        self.view_ = make_view(self.view, self.n_directions)
        self.signature_ = None
        view_shapes = self.view_.shapes(n_regions)
        shapes = {f"view.{name}": shape for name, shape in view_shapes.items()}
        if is_by_cohort(self.recentre):
            shapes["sites.whitenings"] = (len(saved.config["sites"]), n_regions, n_regions)
        elif self.recentre is not None:
            shapes["sites.common"] = (n_regions, n_regions)
            shapes["sites.shifts"] = (len(saved.config["sites"]), n_regions, n_regions)
        if "signature.mean" in saved.tensors:
            shapes["signature.mean"] = (n_regions * (n_regions - 1) // 2,)

        prefixes = ("view.", "sites.", "signature.")
        names = [name for name in saved.tensors if name.startswith(prefixes)]
        arrays = {name: saved.tensors.pop(name).numpy() for name in names}
        check_arrays(arrays, shapes, saved.folder / WEIGHTS)
        self.view_.arrays = {name: arrays[f"view.{name}"] for name in view_shapes}
        sizes = {site: int(n) for site, n in saved.config.get("sites", {}).items()}
        if is_by_cohort(self.recentre):
            self.means_ = CohortMeans(sizes, arrays["sites.whitenings"])
        elif self.recentre is not None:
            self.shifts_ = SiteShifts(sizes, arrays["sites.common"], arrays["sites.shifts"])
        if "signature.mean" in arrays:
            self.signature_ = Signature.saved(
                arrays["signature.mean"], saved.config.get("signature"), saved.folder / CONFIG
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
        """Read what `save` wrote. A newer format, missing file or changed shape is refused.

        Parameters
        ----------
        path : path
            The folder.
        device : str
            Where to compute.
        tokenizer : class, optional
            The class of a tokenizer of your own. A class that a file names is never imported.

        Returns
        -------
        NERVE
        """
        config = read_configuration(path)
        parameters = dict(config.get("parameters", {}))
        config["parameters"] = parameters
        saved_name = str(parameters.get("tokenizer"))
        if tokenizer is not None:
            if class_name(tokenizer) != saved_name:
                raise problem(
                    path,
                    f"its tokenizer is {saved_name}",
                    expected=f"the class given, {class_name(tokenizer)}",
                )
            parameters["tokenizer"] = tokenizer
        elif ":" in saved_name:
            bare_name = saved_name.rpartition(":")[2]
            raise problem(
                path,
                f"its tokenizer is {saved_name}",
                expected=f"one of {', '.join(TOKENIZERS)}, or to be given the class",
                remedy=f"Load it in Python: NERVE.load(folder, tokenizer={bare_name}).",
            )
        return cls.from_files(Path(path), config, device)

    @classmethod
    def from_configuration(cls, config: Mapping[str, Any]) -> Self:
        """Make the unfitted NERVE that a config.json describes."""
        parameters = dict(config["parameters"])
        groups = parameters.get("patching")
        if isinstance(groups, Mapping):
            parameters["patching"] = Patching(groups["group_of"], groups["group_names"])
        return super().from_configuration({**config, "parameters": parameters})

    @classmethod
    def from_pretrained(cls, model: str | os.PathLike[str], *, device: str = "auto") -> Self:
        """Read a trained model.

        Parameters
        ----------
        model : path or str
            A folder, an archive (`nerve pack`) or a name of `nerve models list`.
        device : str
            Where to compute.

        Returns
        -------
        NERVE
        """
        with located(model) as folder:
            return cls.load(folder, device=device)

    def finetune(
        self,
        cohort: Cohort,
        targets: str | Sequence[str],
        covariates: str | Sequence[str] = (),
        *,
        groups: str | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
        callbacks: Sequence[EpochCallback] = (),
        **settings: Any,
    ) -> FineTunedNERVE:
        """Train a head on the tokens, and the encoder with it, to predict a target.

        This model stays as it is. To know how well the result predicts, test it on participants of
        other cohorts, or evaluate the row ``finetune:MODEL``, which is trained inside each fold.

        Parameters
        ----------
        cohort : Cohort
            The training participants; some are held out to choose the epoch. Regions are matched by
            label.
        targets : str
            Column of the participants table: numbers, or words for classes. Participants without a
            value are left out.
        covariates : names of columns
            Regressed from the target, with coefficients of everyone who has the target; the
            residual is predicted. (An evaluation learns them in each fold.)
        groups : str, optional
            Column of families, which are not split when participants are held out.
        run_dir : path, optional
            Where checkpoints and history are written.
        resume : bool
            Go on from the checkpoint in `run_dir`.
        callbacks : sequence of callable
            Called at the end of each epoch, as in `fit`.
        **settings
            Parameters of `nerve.methods.finetuned.FineTunedNERVE`: layers, pooling, epochs …

        Returns
        -------
        FineTunedNERVE
            Fitted.

        Examples
        --------
        >>> import nerve
        >>> cohort = nerve.simulate_cohort(30, parcellation="schaefer100-17", timepoints=60)
        >>> encoder = NERVE.from_preset("small", epochs=1, device="cpu").fit(cohort)
        >>> model = encoder.finetune(cohort, "age", layers=0, epochs=2, device="cpu")
        >>> model.predict(cohort).shape
        (30,)
        """
        from nerve.methods.finetuned import FineTunedNERVE, labels_of, target_of

        self.check_fitted()
        rows, values = target_of(cohort, targets, covariates)
        method = FineTunedNERVE.from_preset("default", pretrained=self, **settings)
        families = None if groups is None else labels_of(cohort, groups)[rows]
        return method.fit(
            cohort.subset(rows),
            values,
            groups=families,
            run_dir=run_dir,
            resume=resume,
            callbacks=callbacks,
        )
