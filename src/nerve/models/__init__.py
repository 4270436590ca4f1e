"""Torch modules. They know tensors and the patching, and no files."""

from nerve.models.counting import parameter_counts, parameter_table
from nerve.models.masked_autoencoder import MaskedAutoencoder
from nerve.models.tokenizers import TOKENIZERS, Tokenizer

__all__ = ["TOKENIZERS", "MaskedAutoencoder", "Tokenizer", "parameter_counts", "parameter_table"]
