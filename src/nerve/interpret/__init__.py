"""What encoders have learned, as small files that the report reads without torch.

    RUN/reconstruction.npz, reconstruction.json    one held-out person masked and reconstructed; errors (`pretraining`)
    RUN/interpretation/NAME.tsv                    tables of network weights, attention and patch importance
"""
