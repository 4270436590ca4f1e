"""Torch modules. They know tensors and the patching, and no files.

Whatever is random in a `training_loss(batch, draws)` comes from `draws`, which `nerve.training.Draws` provides: random
numbers that do not depend on how many processes share a batch.
"""

from nerve.core.masked_autoencoder import MaskedAutoencoder, parameter_counts, parameter_table
from nerve.core.tokenizers import TOKENIZERS, Tokenizer

__all__ = ["TOKENIZERS", "MaskedAutoencoder", "Tokenizer", "parameter_counts", "parameter_table"]
