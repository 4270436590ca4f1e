"""Numbers that the paper and its released code state."""

import pytest

import nerve
from nerve.core import TOKENIZERS, count_parameters
from nerve.core.patching import Patching


@pytest.fixture(scope="module")
def patching() -> Patching:
    return Patching.from_parcellation(nerve.load_parcellation("schaefer400-17"))


def test_the_papers_model_has_exactly_3403712_parameters():
    parcellation = nerve.load_parcellation("schaefer400-17")
    model = nerve.NERVE.from_preset("paper")
    assert model.parameter_count(parcellation) == 3_403_712
    tokenizer = model.build(parcellation).tokenizer
    assert tokenizer.embed_factors.numel() == 102_400


def test_shared_and_specific_as_released_with_their_biases(patching):
    totals = {
        name: count_parameters(patching, name, tokenizer_bias=True)["total"] for name in TOKENIZERS
    }
    assert totals == {"shared": 3_764_209, "specific": 30_700_353, "bilinear": 3_403_712}


def test_tokenizers_without_biases(patching):
    counts = {name: count_parameters(patching, name)["tokenizer"] for name in TOKENIZERS}
    assert counts == {"shared": 389_376, "specific": 21_840_128, "bilinear": 102_400}


def test_growth_is_as_the_paper_states(patching):
    """O(R²/N² d), O(R² d), O(R d): exact for equal groups."""
    for regions, groups in ((120, 6), (240, 6), (240, 12)):
        size = regions // groups
        grid = Patching.grid(regions, size)
        counts = {name: count_parameters(grid, name, dim=32)["tokenizer"] for name in TOKENIZERS}
        assert counts["shared"] == size**2 * 32
        assert counts["specific"] == groups * (groups + 1) // 2 * size**2 * 32
        assert counts["bilinear"] == regions * 32


def test_the_papers_hyperparameters():
    config = nerve.NERVE.from_preset("paper")
    stated = {
        "epochs": 4000,
        "warmup_epochs": 400,
        "batch_size": 1024,
        "lr": 1e-2,
        "weight_decay": 1e-2,
        "betas": (0.9, 0.98),
        "eps": 1e-6,
        "clip": 1.0,
        "mask_ratio": 0.5,
        "dim": 256,
        "depth": 4,
        "heads": 4,
        "decoder_dim": 64,
        "decoder_depth": 1,
        "decoder_heads": 2,
        "validation_fraction": 0.1,
        "loss": "patch_mean",
        "init": "released",
        "view": "fc",
        "standardise": False,
        "pooling": "mean",
        "tokenizer": "bilinear",
        "optimizer": "adamw",
        "schedule": "cosine",
        "keep": "best",
    }
    assert {name: getattr(config, name) for name in stated} == stated


def test_twelve_thousand_steps_on_the_papers_cohorts():
    from nerve.core.training import split_rows

    config = nerve.NERVE.from_preset("paper").training_settings()
    training, _ = split_rows(
        1791 + 1416, config.validation_fraction, config.seed, ["ABCD"] * 1791 + ["PNC"] * 1416
    )
    assert config.total_steps(config.steps_per_epoch(len(training))) == 12_000
