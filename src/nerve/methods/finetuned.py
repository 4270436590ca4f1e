"""Fine-tuning: a head on the tokens of NERVE, trained with the target, with or without the encoder.

The encoder comes from a pretrained run, or has random initial weights as a control. Its tokens are
standardised and pooled by attention or by their mean, and a linear layer predicts the target from
the result. Encoder blocks before the first one that is trained give the same tokens at every epoch:
these are computed once if they fit into memory.
"""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
import torch
from pydantic import PlainValidator
from sklearn.base import clone
from torch import Tensor, nn
from torch.nn import functional

from nerve._utils.errors import NerveError, NotFitted, known_columns, problem
from nerve._utils.privacy import printable_name
from nerve.core.masked_autoencoder import MaskedAutoencoder
from nerve.core.training import ArrayDataset, Dataset, TrainingSettings
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.evaluation.cross_validation import remove_covariates
from nerve.evaluation.protocol import as_names
from nerve.methods.base import SavedModel
from nerve.methods.configuration import read_configuration
from nerve.methods.inputs import chunks
from nerve.methods.nerve import NERVE
from nerve.methods.packing import IN_MEMORY_BELOW, packed_dataset
from nerve.methods.parameters import (
    Count,
    Device,
    Epochs,
    NotNegative,
    Part,
    Positive,
    Seed,
    Share,
    Width,
)
from nerve.methods.pretrained import located
from nerve.methods.trained import ScalarModule, SupervisedMethod

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # the paper does not fine-tune: its network, under our schedule
    "paper": {"network": "paper"},
    "small": {"network": "small", "epochs": 20},
}

# how names begin of the arrays that a saved NERVE holds beside the weights of its module
_ARRAYS_OF_ENCODER = ("view.", "sites.", "signature.")
_POOLING_PCA = ("origin", "components")  # buffers of NERVE's pooling pca, not used here
_AUTOENCODER = "autoencoder."  # how names of the encoder's weights begin in ours
_MOST_LAYERS = 1000
# an inner split with fewer participants is refused
_FEWEST_TRAINED_ON = 4
_FEWEST_HELD_OUT = 2


def _checked_pretrained(value: Any) -> Any:
    """A path or name as text, a NERVE, or None."""
    if value is None or isinstance(value, NERVE):
        return value
    if isinstance(value, str | os.PathLike):
        return str(value)
    raise ValueError("a trained NERVE (folder, archive, name or object), or none")


def _checked_layers(value: Any) -> int | str:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if value == "all" or (is_count and 0 <= value <= _MOST_LAYERS):
        return value
    raise ValueError("a number of last encoder blocks, 0 for the head only, or all")


_PretrainedChoice = Annotated[Any, PlainValidator(_checked_pretrained)]
_LayersChoice = Annotated[Any, PlainValidator(_checked_layers)]


class FineTunedNERVE(SupervisedMethod):
    """A head on the tokens of a NERVE encoder, trained end to end with the target.

    The method's own: `NERVE`'s view, patches, tokens and encoder, with nothing masked; regions are
    matched by label, and a cohort of other regions is refused. The attention pooling is the
    ``attn`` probe of Brainmarks: one learned query per head, keys and values from the patch tokens,
    a linear layer on what is pooled.

    Ours: each token enters the head minus its mean over the participants given to `fit`, and all
    are divided by one number. Keys also hold a learned vector per pair of networks, because without
    its mean a token does not show to which pair it belongs. The pooled vector is normalised before
    the linear layer. The epoch is chosen on participants held out within the training set, without
    splitting families, and training stops after `patience` epochs without a smaller loss on them.
    View and standardisation of a pretrained run stay as they are.

    The NERVE paper does not say how to fine-tune: it uses kernel ridge on frozen features.

    Parameters
    ----------
    pretrained : str, path or NERVE, optional
        The encoder: folder, archive, name or object; by default a network with random weights.
    network : {"small", "default", "paper"}
        Preset of the network with random weights that is used if there is no `pretrained`.
    layers : int or "all"
        What is trained beside the head: 0 nothing, k the last k encoder blocks, all the whole
        encoder with its tokenizer and positions.
    pooling : {"attention", "mean"}
        How patch tokens become one vector.
    heads : int
        Attention heads of the pooling; a divisor of the encoder's width.
    dropout : float
        Before the linear layer, while training.
    epochs : int
        Passes over the training participants, at most.
    patience : int
        Stop after so many epochs without a smaller loss on the inner validation.
    batch_size : int
        Participants per step.
    learning_rate : float
        Largest learning rate, of head and encoder.
    weight_decay : float
        Weight decay.
    warmup_epochs : float
        Epochs of linear warm-up; a cosine follows.
    validation_fraction : float
        Share of the training participants held out, on whom the epoch is chosen.
    checkpoint_seconds : float
        Seconds between checkpoints of a run with a folder; 0 for every step.
    seed : int
        Fixes initial weights, split, data order and dropout.
    device : str
        auto, cpu, cuda, cuda:1, mps.

    Attributes
    ----------
    module_ : FineTunedModel
        The trained network.
    encoder_ : NERVE
        The encoder with its weights after training; it can be used as any other NERVE.

    See Also
    --------
    nerve.NERVE.finetune : from a cohort and a column of its table.

    Examples
    --------
    >>> import nerve
    >>> cohort = nerve.simulate_cohort(24, parcellation="schaefer100-17", timepoints=60)
    >>> model = FineTunedNERVE(layers=0, epochs=2, device="cpu")
    >>> model.fit(cohort, cohort.participants["age"]).predict(cohort[:3]).shape
    (3,)
    """

    title: ClassVar[str] = "NERVE, fine-tuned"
    citation: ClassVar[str] = (
        "NERVE: network-aware bilinear tokenization for brain functional connectivity "
        "representation learning; attention pooling as in Brainmarks (MedARC)"
    )
    adapted: ClassVar[str] = (
        "The paper uses frozen features; here a head, and as much of the encoder as is asked for, "
        "is trained with the target."
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS
    batch_size_apply: ClassVar[int] = NERVE.batch_size_apply

    encoder_: NERVE
    # name of the encoder that training began with, and a hash of its weights
    pretrained_: dict[str, str]

    def __init__(
        self,
        pretrained: _PretrainedChoice = None,
        *,
        network: Literal["small", "default", "paper"] = "default",
        layers: _LayersChoice = "all",
        pooling: Literal["attention", "mean"] = "attention",
        heads: Width = 4,
        dropout: Share = 0.1,
        epochs: Epochs = 30,
        patience: Count = 5,
        batch_size: Count = 32,
        learning_rate: Positive = 1e-3,
        weight_decay: NotNegative = 0.01,
        warmup_epochs: NotNegative = 1.0,
        validation_fraction: Part = 0.2,
        checkpoint_seconds: NotNegative = 60.0,
        seed: Seed = 0,
        device: Device = "auto",
    ) -> None:
        self.pretrained = pretrained
        self.network = network
        self.layers = layers
        self.pooling = pooling
        self.heads = heads
        self.dropout = dropout
        self.epochs = epochs
        self.patience = patience
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup_epochs = warmup_epochs
        self.validation_fraction = validation_fraction
        self.checkpoint_seconds = checkpoint_seconds
        self.seed = seed
        self.device = device

    def __sklearn_clone__(self) -> Self:
        """A copy that is not fitted; a NERVE object in `pretrained` stays fitted."""
        method = type(self)(**self.get_params(deep=False))
        method._preset = self._preset
        return method

    # Parameters

    @property
    def view(self) -> str:  # type: ignore[override]
        """The matrix that is cut into patches: that of the encoder."""
        return str(self._unfitted_encoder().view)

    def check_parameters(self, where: str = "") -> dict[str, Any]:
        """Check the parameters, and that `layers` and `heads` fit the encoder in `pretrained`.

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
        if self.pretrained is not None:
            encoder = self._unfitted_encoder()
            _check_layers(self.layers, encoder.depth)
            _check_heads(self.heads, encoder.dim)
        return parameters

    def described_parameters(self) -> dict[str, Any]:
        """The parameters as plain JSON; `pretrained` is the name of the run, without its path."""
        parameters = super().described_parameters()
        known = getattr(self, "pretrained_", None)
        parameters["pretrained"] = self._name_of_pretrained() if known is None else known["name"]
        if parameters["pretrained"]:
            del parameters["network"]  # only used without `pretrained`
        else:
            del parameters["pretrained"]
        return parameters

    @classmethod
    def from_configuration(cls, config: Mapping[str, Any]) -> Self:
        """Make the unfitted method that a config.json describes; no other file is opened."""
        parameters = dict(config["parameters"])
        parameters.pop("pretrained", None)  # a name for readers: the weights are in the folder
        return super().from_configuration({**config, "parameters": parameters})

    def pretrained_encoder(self) -> NERVE | None:
        """Load or copy the encoder that training begins with.

        Returns
        -------
        NERVE or None
            Fitted; None for a network with random weights.
        """
        if self.pretrained is None:
            return None
        if not isinstance(self.pretrained, NERVE):
            return NERVE.from_pretrained(self.pretrained, device=self.device)
        if not hasattr(self.pretrained, "module_"):
            raise NotFitted(
                "The NERVE given as pretrained is not fitted. Call its fit first, or load a saved "
                "one."
            )
        return copy.deepcopy(self.pretrained)

    def _unfitted_encoder(self) -> NERVE:
        """A NERVE with the parameters of the encoder; no weights are read."""
        if hasattr(self, "encoder_"):
            return self.encoder_
        if self.pretrained is None:
            return NERVE.from_preset(self.network)
        if isinstance(self.pretrained, NERVE):
            return self.pretrained
        try:
            with located(self.pretrained) as folder:
                config = read_configuration(folder)
        except NerveError as error:
            raise NerveError(f"pretrained: {error}") from error
        if config.get("method") != "NERVE":
            raise problem(
                self.pretrained,
                f"it holds a {config.get('method')}",
                expected="a NERVE, as `nerve pretrain` writes it",
            )
        return NERVE.from_configuration(config)

    def _name_of_pretrained(self) -> str:
        """What results and cards call the run; empty where there is none."""
        if self.pretrained is None:
            return ""
        if isinstance(self.pretrained, NERVE):
            return "a fitted NERVE"
        path = Path(self.pretrained)
        return printable_name(path.stem if path.suffix == ".zip" else path.resolve().name, most=60)

    # Training

    def begin_fit(self, data: Any) -> Cohort:
        """Get the encoder, then bring the data into its region order.

        Parameters
        ----------
        data : Cohort, sequence of Cohorts, or (n, R, R) array

        Returns
        -------
        Cohort
        """
        for name in ("encoder_", "pretrained_"):  # of an earlier fit
            if hasattr(self, name):
                delattr(self, name)
        self.check_parameters()
        encoder = self.pretrained_encoder()
        if encoder is not None:
            self.encoder_ = encoder
        cohort = super().begin_fit(data)
        if encoder is None:
            # epochs=0: view and standardisation are fitted, the weights stay random
            encoder = NERVE.from_preset(
                self.network, epochs=0, pooling="mean", seed=self.seed, device=self.device
            )
            self.encoder_ = encoder.fit(cohort)
        encoder.set_params(pooling="mean", patching=encoder.patching_)
        weights = encoder.module_.state_dict()
        self.pretrained_ = {"name": self._name_of_pretrained(), "weights": _hash_of(weights)}
        return cohort

    def align_and_check_measure(
        self, data: Any, parcellation: Parcellation | str | None = None
    ) -> Cohort:
        """Reorder the regions of data by label, as the pretrained encoder has them.

        Parameters
        ----------
        data : Cohort, sequence of Cohorts, or (n, R, R) array
        parcellation : Parcellation or str, optional
            The order of regions that is wanted; by default that of the encoder.

        Returns
        -------
        Cohort
        """
        if parcellation is None and hasattr(self, "encoder_"):
            parcellation = self.encoder_.parcellation_
        return super().align_and_check_measure(data, parcellation)

    def learn_target(self, y: Any) -> np.ndarray:
        """Check the target and find its scale; three or more different words are classes."""
        words = _words(y)
        if words is None or len(np.unique(words)) < 3:
            values = super().learn_target(y)
            if np.ptp(values) == 0:
                raise problem(
                    "The target",
                    "it has the same value for every training participant",
                    expected="two different values at least",
                )
            return values
        labels, codes = np.unique(words, return_inverse=True)
        names = [str(label) for label in labels]
        self.target_ = {"mean": 0.0, "scale": 1.0, "binary": False, "labels": names}
        return codes.astype(np.float32)

    def validation_split(
        self, cohort: Cohort, settings: TrainingSettings, groups: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Training and inner validation rows; too few of either are refused."""
        training, validation = super().validation_split(cohort, settings, groups)
        if len(training) < _FEWEST_TRAINED_ON or len(validation) < _FEWEST_HELD_OUT:
            raise problem(
                "The training participants",
                f"{len(cohort)} of them leave {len(training)} to train on and {len(validation)} "
                "for the inner validation",
                expected=f"at least {_FEWEST_TRAINED_ON} and {_FEWEST_HELD_OUT}, without splitting "
                "families",
                remedy="Use more participants, fewer folds or another validation_fraction.",
            )
        return training, validation

    def build(self, parcellation: Parcellation) -> FineTunedModel:
        """Make the untrained module; `begin_training` loads the weights of the encoder."""
        network = clone(self._unfitted_encoder()).set_params(pooling="mean")
        return FineTunedModel(
            network.build(parcellation),
            layers=self.layers,
            pooling=self.pooling,
            heads=self.heads,
            dropout=self.dropout,
            n_outputs=self._n_outputs(),
        )

    def training_settings(self) -> TrainingSettings:
        """How it is trained."""
        return TrainingSettings(
            epochs=self.epochs,
            patience=self.patience,
            batch_size=self.batch_size,
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            warmup_epochs=self.warmup_epochs,
            validation_fraction=self.validation_fraction,
            checkpoint_seconds=self.checkpoint_seconds,
            seed=self.seed,
            device=self.device,
        )

    def identity_of_run(self) -> dict[str, Any]:
        """Add the hash of the weights that training began with."""
        return {**super().identity_of_run(), "weights": self.pretrained_["weights"]}

    def begin_training(
        self, cohort: Cohort, rows: np.ndarray, folder: Path | None = None
    ) -> Dataset:
        """Build the module, give it the weights of the encoder and prepare it.

        Parameters
        ----------
        cohort : Cohort
            What `begin_fit` gave.
        rows : array of int
            The training participants.
        folder : path, optional
            The folder of the run.

        Returns
        -------
        Dataset
            Where batches come from.
        """
        self.module_ = self.seeded_build(cohort.parcellation)
        weights = self.encoder_.module_.state_dict()
        for name in _POOLING_PCA:
            weights.pop(name, None)
        self.module_.autoencoder.load_state_dict(weights)
        self.encoder_.module_ = self.module_.autoencoder
        dataset = self.training_dataset(cohort, folder)
        self.prepare_module(self.module_, dataset, rows)
        return dataset

    def training_dataset(self, cohort: Cohort, folder: Path | None) -> Dataset:
        """Packed matrices; or tokens that the untrained blocks make of them, if these fit.

        Parameters
        ----------
        cohort : Cohort
        folder : Path, optional
            Where packed matrices are written that do not fit into memory.

        Returns
        -------
        Dataset
        """
        packed = packed_dataset(self.encoder_.dataset(cohort), folder)
        n_tokens = 1 + self.encoder_.patching_.n_patches
        n_bytes = 4 * len(cohort) * n_tokens * self.encoder_.dim
        if self.layers == "all" or n_bytes >= IN_MEMORY_BELOW:
            return packed
        return ArrayDataset(self.apply(self.module_.untrained_part, packed))

    def prepare_module(self, module: Any, dataset: Dataset, rows: np.ndarray) -> None:
        """Fit the standardisation of tokens on all participants given to `fit`, without labels.

        Parameters
        ----------
        module : FineTunedModel
        dataset : Dataset
        rows : (n_training,)
            Not used: with the mean of the training participants, a saved model would reveal the
            mean of the others, who may be few.
        """
        super().prepare_module(module, dataset, rows)
        parts = chunks(len(dataset), self.batch_size_apply)
        module.fit_standardisation(dataset.batch(places) for places in parts)

    def dataset(self, cohort: Cohort) -> Dataset:
        """A cohort as the encoder reads it: in its view and patches."""
        dataset = self.encoder_.dataset(cohort)
        self.adapted_ = self.encoder_.adapted_
        return dataset

    # Use

    def predict(self, X: Any) -> np.ndarray:
        """Predictions in the target's own units; labels if the target was words.

        Parameters
        ----------
        X : Cohort, sequence of Cohorts, or (n, R, R) array

        Returns
        -------
        (n,) array
        """
        if self._n_outputs() == 1:
            return super().predict(X)
        labels = np.asarray(self.target_["labels"])
        return labels[self._logits(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes in the order of ``target_["labels"]``, or of two values.

        Parameters
        ----------
        X : Cohort, sequence of Cohorts, or (n, R, R) array

        Returns
        -------
        (n, classes) array
        """
        if self._n_outputs() == 1:
            return super().predict_proba(X)
        logits = torch.from_numpy(self._logits(X)).double()
        return logits.softmax(1).numpy()

    def _logits(self, X: Any) -> np.ndarray:
        """(n, classes)."""
        cohort = self.align_to_fitted(X)
        return self.apply(self.module_.predict, self.dataset(cohort))

    def _n_outputs(self) -> int:
        """Outputs of the network: one, or one per class if there are three or more."""
        labels = getattr(self, "target_", {}).get("labels") or []
        return len(labels) if len(labels) > 2 else 1

    # Files

    def tensors(self) -> dict[str, Tensor]:
        """Weights and buffers, and the arrays of the encoder's view and sites."""
        arrays = {}
        for name, tensor in self.encoder_.tensors().items():
            if name.startswith(_ARRAYS_OF_ENCODER):
                arrays[name] = tensor
        return super().tensors() | arrays

    def state(self) -> dict[str, Any]:
        """Add what is needed to make the encoder again."""
        encoder = self.encoder_
        state_of_encoder = encoder.state()
        description = {
            **self.pretrained_,
            "parameters": encoder.described_parameters(),
            "preset": encoder.preset_name(),
            "data": encoder.data_,
            "adapted": encoder.adapted_,
            "signature": state_of_encoder["signature"],
            "sites": state_of_encoder.get("sites", {}),
        }
        return {**super().state(), "encoder": description}

    def restore(self, saved: SavedModel) -> None:
        """Make the encoder again, then the module around it."""
        target = saved.config["target"]
        self.target_ = {name: target[name] for name in ("mean", "scale", "binary", "labels")}
        description = saved.config["encoder"]
        self.pretrained_ = {name: description[name] for name in ("name", "weights")}
        encoder = NERVE.from_configuration(description)
        encoder.set_params(device=self.device)
        encoder.check_parameters("encoder")
        encoder.parcellation_ = self.parcellation_
        encoder.n_features_in_ = self.n_features_in_
        encoder.data_ = description.get("data", {})
        encoder.adapted_ = description.get("adapted", "")

        tensors_of_encoder = {}
        for name in list(saved.tensors):
            if name.startswith(_ARRAYS_OF_ENCODER):
                tensors_of_encoder[name] = saved.tensors.pop(name)
            elif name.startswith(_AUTOENCODER):
                tensors_of_encoder[name.removeprefix(_AUTOENCODER)] = saved.tensors[name]
        encoder.restore(SavedModel(saved.folder, description, tensors_of_encoder))
        self.encoder_ = encoder
        super().restore(saved)
        encoder.module_ = self.module_.autoencoder

    def card_lines(self) -> list[str]:
        """Add where the encoder came from, and what was trained."""
        encoder = "random weights"
        name = self.pretrained_["name"]
        if name:
            counts = self.encoder_.data_.get("cohorts", {}).items()
            cohorts = ", ".join(f"{cohort} ({count})" for cohort, count in counts)
            encoder = f"{name}, pretrained without labels on {cohorts}"
        trained = f"the head and the last {self.layers} encoder blocks"
        if self.layers == 0:
            trained = "the head only"
        elif self.layers == "all":
            trained = "head and encoder"
        return [*super().card_lines(), f"Encoder: {encoder}", f"Trained: {trained}"]


class FineTunedModel(ScalarModule):
    """Packed matrices → tokens → encoder blocks → standardised patch tokens → pooling → target.

    Parameters
    ----------
    autoencoder : MaskedAutoencoder
        Its tokenizer and encoder are used; its decoder is kept unchanged.
    layers : int or "all"
        Encoder blocks that are trained, the last ones; all: the tokenizer and positions too.
    pooling : {"attention", "mean"}
        How patch tokens become one vector.
    heads : int
        Attention heads of the pooling.
    dropout : float
        Before the linear layer, while training.
    n_outputs : int
        Numbers per participant: 1, or one logit per class.
    """

    def __init__(
        self,
        autoencoder: MaskedAutoencoder,
        *,
        layers: int | str,
        pooling: str,
        heads: int,
        dropout: float,
        n_outputs: int,
    ) -> None:
        super().__init__()
        self.autoencoder = autoencoder
        dim = autoencoder.cls.shape[-1]
        n_patches = autoencoder.patching.n_patches
        depth = len(autoencoder.encoder)
        _check_layers(layers, depth)
        _check_heads(heads, dim)
        self.first_trained = 0 if layers == "all" else depth - int(layers)
        self._choose_what_is_trained(everything=layers == "all")

        self.mean = nn.Buffer(torch.zeros(n_patches, dim))
        self.scale = nn.Buffer(torch.ones(()))
        self.pool = (
            AttentionPooling(n_patches, dim, heads) if pooling == "attention" else MeanPooling()
        )
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(dim, n_outputs)
        nn.init.trunc_normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def _choose_what_is_trained(self, everything: bool) -> None:
        """Freeze the autoencoder except its last encoder blocks.

        With `everything`, its CLS token, positions and the tokenizer's way to tokens are trained
        as well; the decoder never is.
        """
        self.autoencoder.requires_grad_(False)
        self.autoencoder.encoder[self.first_trained :].requires_grad_(True)
        if everything:
            self.autoencoder.cls.requires_grad_(True)
            self.autoencoder.positions.requires_grad_(True)
            for name, weights in self.autoencoder.tokenizer.named_parameters():
                weights.requires_grad_(name.startswith("embed"))

    def forward(self, inputs: Tensor) -> Tensor:
        """One number per participant, (batch,), or logits of several classes, (batch, classes).

        Parameters
        ----------
        inputs : (batch, S) or (batch, 1 + P, dim) tensor
            Packed matrices, or what `untrained_part` made of them.

        Returns
        -------
        tensor
        """
        tokens = (self.patch_tokens(inputs) - self.mean) / self.scale  # (batch, P, dim)
        pooled = self.norm(self.pool(tokens))  # (batch, dim)
        outputs = self.output(self.dropout(pooled))  # (batch, outputs)
        return outputs.squeeze(-1) if outputs.shape[-1] == 1 else outputs

    def untrained_part(self, packed: Tensor) -> Tensor:
        """(batch, S) → (batch, 1 + P, dim): CLS and tokens that the first trained block reads."""
        tokens = self.autoencoder.token_sequence(packed, None)
        return self.autoencoder.encoder[: self.first_trained](tokens)

    def patch_tokens(self, inputs: Tensor) -> Tensor:
        """The encoder's tokens before its last norm, without CLS: (batch, P, dim)."""
        tokens = self.untrained_part(inputs) if inputs.ndim == 2 else inputs
        return self.autoencoder.encoder[self.first_trained :](tokens)[:, 1:]

    @torch.no_grad()
    def fit_standardisation(self, batches: Iterable[Tensor]) -> None:
        """Set the mean of each token, and one standard deviation for all numbers.

        Parameters
        ----------
        batches : iterable of tensors
            What `forward` takes; read once.
        """
        total = torch.zeros(self.mean.shape, dtype=torch.float64)
        squares = torch.zeros(self.mean.shape, dtype=torch.float64)
        count = 0
        for batch in batches:
            tokens = self.patch_tokens(batch.to(self.mean.device)).cpu().double()
            total += tokens.sum(0)
            squares += tokens.square().sum(0)
            count += len(tokens)
        mean = total / count
        variance = (squares / count - mean.square()).clamp_min(0).mean()
        self.mean.copy_(mean)
        self.scale.copy_(variance.sqrt() if variance > 0 else torch.ones(()))

    def error(self, predicted: Tensor, target: Tensor) -> Tensor:
        """Mean squared error, or cross-entropy if the target has classes."""
        if predicted.ndim == 2:
            return functional.cross_entropy(predicted, target.long())
        return super().error(predicted, target)


class AttentionPooling(nn.Module):
    """One learned query per head attends to the patch tokens.

    With t_p the token of pair p, e_p a learned vector of the pair, and a query q of each head,

        a_p = softmax_p(q · K (t_p + e_p) / √(dim / heads)),    pooled = Σ_p a_p V t_p.

    Parameters
    ----------
    n_patches : int
        Tokens per participant.
    dim : int
        Width of the tokens.
    heads : int
        Queries; a divisor of `dim`.
    """

    def __init__(self, n_patches: int, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Parameter(torch.empty(heads, 1, dim // heads))
        self.pairs = nn.Parameter(torch.empty(n_patches, dim))
        self.key = nn.Linear(dim, dim, bias=False)  # a bias would change no weight
        self.value = nn.Linear(dim, dim)
        nn.init.normal_(self.query)
        nn.init.normal_(self.pairs)
        for layer in (self.key, self.value):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(self.value.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, P, dim) → (batch, dim)."""
        keys = self._by_head(self.key(tokens + self.pairs))  # (batch, heads, P, dim / heads)
        values = self._by_head(self.value(tokens))  # (batch, heads, P, dim / heads)
        queries = self.query.expand(len(tokens), -1, -1, -1)  # (batch, heads, 1, dim / heads)
        # (batch, heads, 1, dim / heads)
        pooled = functional.scaled_dot_product_attention(queries, keys, values)
        return pooled.flatten(1)  # (batch, dim)

    def _by_head(self, tokens: Tensor) -> Tensor:
        """(batch, P, dim) → (batch, heads, P, dim / heads)."""
        return tokens.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class MeanPooling(nn.Module):
    """The mean of the patch tokens: (batch, P, dim) → (batch, dim)."""

    def forward(self, tokens: Tensor) -> Tensor:
        """The mean."""
        return tokens.mean(1)


def labels_of(cohort: Cohort, column: str) -> np.ndarray:
    """A column of the participants table, for example of families.

    Parameters
    ----------
    cohort : Cohort
    column : str

    Returns
    -------
    (n,) array
    """
    table = cohort.participants
    known_columns([column], table.columns, f"participants of {cohort.name!r}")
    return table[column].to_numpy(object)


def target_of(
    cohort: Cohort, targets: str | Sequence[str], covariates: str | Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """A column of the participants table as `FineTunedNERVE.fit` takes it.

    Parameters
    ----------
    cohort : Cohort
    targets : str
        One column: numbers or words. With covariates, words must be of two classes, which become 0
        and 1.
    covariates : names of columns
        Regressed from the target with coefficients of these participants.

    Returns
    -------
    rows : (k,) array of int
        Participants who have the target.
    values : (k,) array
        Their targets.
    """
    wanted = as_names(targets)
    if len(wanted) != 1:
        raise problem(
            "targets",
            f"there are {len(wanted)}",
            expected="one: a network is trained for each",
            remedy="Call finetune once per target.",
        )
    target = wanted[0]
    table = cohort.participants
    names = list(as_names(covariates))
    known_columns([target, *names], table.columns, f"participants of {cohort.name!r}")
    rows = np.flatnonzero(table[target].notna().to_numpy())
    values = table[target].iloc[rows].to_numpy()
    if not names:
        return rows, values
    words = _words(values)
    if words is not None:
        labels, codes = np.unique(words, return_inverse=True)
        if len(labels) != 2:
            raise problem(
                f"target {target!r}",
                f"it has {len(labels)} classes, and there are covariates",
                expected="numbers or two classes, from which covariates can be regressed",
                remedy="Leave the covariates out, or evaluate the row finetune, which predicts "
                "each class against all others.",
            )
        values = codes
    train = np.arange(len(rows))
    test = train[:0]
    residuals, _ = remove_covariates(
        np.asarray(values, float), target, train, test, table[names].iloc[rows]
    )
    return rows, residuals


def _words(y: Any) -> np.ndarray | None:
    """The target as words, none of them missing; None if it is numeric."""
    values = np.asarray(y)
    if values.ndim != 1:
        return None
    try:
        values.astype(float)
    except (TypeError, ValueError):
        n_missing = int(pd.isna(values).sum())
        if n_missing:
            raise NerveError(
                f"The target has {n_missing} missing values. Leave these participants out."
            ) from None
        return values.astype(str)
    return None


def _check_layers(layers: int | str, depth: int) -> None:
    if layers != "all" and int(layers) > depth:
        raise problem(
            "layers",
            f"it is {layers}, and the encoder has {depth} blocks",
            expected=f"0 (the head only) to {depth}, or all",
        )


def _check_heads(heads: int, dim: int) -> None:
    if dim % heads:
        raise problem(
            "heads",
            f"it is {heads}, and the encoder is {dim} wide",
            expected=f"a divisor of {dim}",
        )


def _hash_of(weights: Mapping[str, Tensor]) -> str:
    """A hash of named tensors."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
