"""What encoders have learned, as small files that the report reads without torch.

    RUN/reconstruction.npz, reconstruction.json    mean FC of held-out participants, masked and
                                                   reconstructed; errors (`pretraining`)
    OUT/interpretation/network_weights.tsv         regions that each network's embedding relies on
                                                   (`maps`)
    OUT/interpretation/region_occlusion.tsv        regions that the features depend on, where
                                                   weights do not differ (`regions`)
    OUT/interpretation/attention.tsv               attention between networks, by layer and head,
                                                   and rollout (`maps`)
    OUT/interpretation/attention_pairs.tsv         rollout received by each network pair (`maps`)
    OUT/interpretation/importance.tsv              network pairs that carry a prediction: occlusion
                                                   and patterns (`importance`)
    OUT/interpretation/stability.json              agreement of every map over seeds (`stability`)

Every function takes one encoder, or several that differ in their seed. Maps of several encoders are
averaged, and their tables say how well they agree.
"""

from nerve.interpret.importance import patch_importance
from nerve.interpret.maps import attention_summary, network_weights
from nerve.interpret.output import interpret_to, load_encoder
from nerve.interpret.regions import region_occlusion
from nerve.interpret.stability import stability

__all__ = [
    "attention_summary",
    "interpret_to",
    "load_encoder",
    "network_weights",
    "patch_importance",
    "region_occlusion",
    "stability",
]
