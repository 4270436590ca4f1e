"""The paper, in the order of its Methods. Who has the paper in hand starts here and can end here.

| in the paper | here |
|---|---|
| x_{l,m}, l ≤ m; N_patch = N_n (N_n + 1) / 2 | `Patching.pairs`, `Patching.pack` (patching.py) |
| X, the matrix that is cut | `FCView`; ours: `TangentView`, `ShrunkView` (views.py) |
| t = Wᵀ vec(x), shared | `SharedTokenizer` (tokenizers.py) |
| t = W_{l,m}ᵀ vec(x), patch-specific | `SpecificTokenizer` |
| W_{l,m} = U_l ⊙ U_m, bilinear | `BilinearTokenizer.embed_weights`; product: `Tokenizer.embed` |
| x̂_{l,m} from decoded tokens | `Tokenizer.reconstruct` |
| CLS token, positional embeddings | `MaskedAutoencoder.token_sequence` (masked_autoencoder.py) |
| random masks, a fixed share per participant | `MaskedAutoencoder.choose_masks` |
| encoder on visible tokens | `MaskedAutoencoder.encode`; layers: transformer.py |
| mask tokens, light decoder | `MaskedAutoencoder.decode` |
| L_recon = 1/|M| Σ ‖x̂ - x‖² | `MaskedAutoencoder.masked_loss` |
| the representation of a participant | `MaskedAutoencoder.embed` |
| AdamW, warm-up, cosine, batches, epochs | `train`, `TrainingSettings` (training.py) |

What the paper's numbers are (4 layers, 256 wide, 4,000 epochs …) stands in the preset ``paper`` of
`nerve.methods.nerve`. What the released code does differently from the text is in docs/methods.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "masked_autoencoder": ["MaskedAutoencoder", "count_parameters"],
        "patching": ["Patching"],
        "tokenizers": ["TOKENIZERS", "Tokenizer"],
        "views": ["VIEWS", "View"],
    },
)
