"""What encoders have learned, as small files that the report reads without torch.

    RUN/reconstruction.npz, reconstruction.json    held-out mean, masked and reconstructed; errors (`pretraining`)
    OUT/interpretation/network_weights.tsv         which regions each network's embedding relies on (`maps`)
    OUT/interpretation/attention.tsv               attention between networks, by layer and head, and rollout
    OUT/interpretation/attention_pairs.tsv         rollout received by each network pair
    OUT/interpretation/importance.tsv              which network pairs carry a prediction: occlusion and patterns
    OUT/interpretation/stability.json              agreement of every map over seeds

Every function takes one encoder or several that differ in their seed; with several, maps are averaged and say how well
they agree (`stability`).
"""

from nerve.interpret.importance import patch_importance
from nerve.interpret.maps import attention_summary, network_weights
from nerve.interpret.output import interpret_to, load_encoder
from nerve.interpret.stability import stability

__all__ = [
    "attention_summary",
    "interpret_to",
    "load_encoder",
    "network_weights",
    "patch_importance",
    "stability",
]
