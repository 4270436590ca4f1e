"""Whatever is called NERVE passes through tokenizer and encoder: for every preset and pooling, tests that can fail."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import nerve
from nerve._utils.errors import NerveError
from nerve.core import TOKENIZERS, Tokenizer
from nerve.core.masked_autoencoder import POOLINGS
from nerve.core.views import VIEWS
from nerve.interpret import interpret_to
from nerve.methods.nerve import PRESETS

QUICK = {"dim": 16, "depth": 1, "epochs": 1, "batch_size": 16, "device": "cpu"}
every_preset = pytest.mark.parametrize("preset", PRESETS)


@pytest.fixture(scope="module")
def cohort() -> nerve.Cohort:
    """Forty participants of 19 regions in four networks."""
    sizes = [5, 3, 7, 4]
    networks = tuple(f"N{g}" for g, n in enumerate(sizes) for _ in range(n))
    parcellation = nerve.Parcellation(tuple(f"r{i}" for i in range(19)), networks, name="nineteen")
    series = np.random.default_rng(0).normal(size=(40, 19, 60))
    series[:, 1:] += 0.5 * series[:, :-1]
    table = pd.DataFrame({"participant_id": [f"p{i}" for i in range(40)], "score": np.arange(40.0)})
    return nerve.Cohort(
        np.stack([np.corrcoef(one) for one in series]), table, parcellation, name="forty"
    )


@pytest.fixture(scope="module")
def fitted(cohort):
    """Each preset fitted once; `pca` needs components, so `paper` is asked for them too."""
    return {
        preset: nerve.NERVE.from_preset(
            preset, pooling="pca", **QUICK, heads=2, n_components=16
        ).fit(cohort)
        for preset in PRESETS
    }


def with_random_weights(encoder: nerve.NERVE, part: str) -> nerve.NERVE:
    """A copy in which every weight of one part is a random number."""
    other = copy.copy(encoder)
    other.module_ = copy.deepcopy(encoder.module_)
    parts = (
        [other.module_.tokenizer]
        if part == "tokenizer"
        else [other.module_.encoder, other.module_.encoder_norm]
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(99)
        for module in parts:
            for weight in module.parameters():
                weight.copy_(torch.randn_like(weight))
    return other


@every_preset
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("part", ["tokenizer", "encoder"])
def test_random_weights_change_the_features(preset, pooling, part, fitted, cohort):
    before = fitted[preset].transform(cohort, pooling)
    after = with_random_weights(fitted[preset], part).transform(cohort, pooling)
    assert np.abs(after - before).max() > 0.05 * before.std()
    within = (before - before.mean(0)).ravel(), (after - after.mean(0)).ravel()
    assert (
        np.corrcoef(*within)[0, 1] < 0.99
    )  # how participants differ has changed, not only where all of them are


@pytest.mark.slow
@every_preset
def test_tokenizers_differ(preset, cohort, fitted):
    features = {"bilinear": fitted[preset].transform(cohort)}
    for name in set(TOKENIZERS) - {"bilinear"}:
        encoder = nerve.NERVE(**{**fitted[preset].get_params(), "tokenizer": name}).fit(cohort)
        features[name] = encoder.transform(cohort)
    kernels = [np.corrcoef(one)[np.triu_indices(40, 1)] for one in features.values()]
    agreement = np.corrcoef(kernels)
    assert agreement[np.triu_indices(3, 1)].max() < 0.99


@every_preset
def test_permuted_networks_change_tokens(preset, cohort, fitted):
    permuted = nerve.NERVE(**{**fitted[preset].get_params(), "patching": "permuted0"}).fit(cohort)
    tokens, others = (
        one.transform(cohort, "tokens").reshape(40, -1) for one in (fitted[preset], permuted)
    )
    kernels = [np.corrcoef(one - one.mean(0))[np.triu_indices(40, 1)] for one in (tokens, others)]
    assert np.corrcoef(kernels)[0, 1] < 0.99


@every_preset
def test_pca_is_principal_components_of_the_differences_of_tokens_from_the_mean(
    preset, cohort, fitted
):
    encoder = fitted[preset]
    module, packed = (
        encoder.module_,
        torch.from_numpy(encoder.patch_dataset(cohort).packed(np.arange(40))),
    )
    with torch.inference_mode():
        group = module.encoder(module.token_sequence(packed.mean(0, keepdim=True), None))
        tokens = (
            (module.encoder(module.token_sequence(packed, None)) - group)[:, 1:]
            .flatten(1)
            .double()
            .numpy()
        )
    left, size, _ = np.linalg.svd(tokens, full_matrices=False)
    scores = left[:, :15] * size[:15]
    found = encoder.transform(cohort).astype(float)
    assert found.shape == (40, 16)
    np.testing.assert_allclose(found @ found.T, scores @ scores.T, atol=1e-3 * size[0] ** 2)
    np.testing.assert_allclose(found.sum(1), 0, atol=1e-4 * size[0])


@every_preset
def test_region_weights_have_spread_or_are_not_drawn(preset, cohort, fitted, tmp_path):
    tables = interpret_to(tmp_path, fitted[preset], cohort)
    assert preset != "paper" or "network_weights" in tables
    assert "network_weights" not in tables or tables["network_weights"]["weight"].std() > 0.005
    even = copy.copy(fitted[preset])
    even.module_ = copy.deepcopy(even.module_)
    nn.init.ones_(even.module_.tokenizer.embed_factors)
    assert "network_weights" not in interpret_to(tmp_path, even, cohort)


# ---- views


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_fitted_on_those_given_to_fit_and_saved_with_the_model(view, cohort, tmp_path):
    encoder = nerve.NERVE(view=view, **QUICK, n_components=8).fit(cohort)
    expected = VIEWS[view]().fit(cohort.connectivity).apply(cohort.connectivity)
    np.testing.assert_allclose(
        encoder.patch_dataset(cohort).packed(np.arange(40)), encoder.patching_.pack(expected)
    )
    encoder.save(tmp_path)
    loaded = nerve.NERVE.load(tmp_path, device="cpu")
    assert loaded.view == view
    np.testing.assert_array_equal(loaded.transform(cohort), encoder.transform(cohort))
    first = nerve.NERVE(view=view, **QUICK, n_components=8).fit(cohort.subset(np.arange(20)))
    own = (
        VIEWS[view]().fit(cohort.connectivity[:20]).apply(cohort.connectivity)
    )  # nothing of those who came later
    np.testing.assert_allclose(
        first.patch_dataset(cohort).packed(np.arange(40)), first.patching_.pack(own), atol=1e-6
    )
    label = "# NERVE\n" if view == "fc" else f"# NERVE, {view} view\n"
    assert (tmp_path / "README.md").read_text().startswith(label)


# ---- a tokenizer of one's own


class MeanTokenizer(Tokenizer):
    """Knows nothing of a patch but its mean."""

    def __init__(self, patching, dim, decoder_dim, bias=False):
        super().__init__(patching, dim, decoder_dim)
        self.embed_rows = nn.Parameter(torch.empty(self.n_patches, dim))
        self.reconstruct_rows = nn.Parameter(torch.empty(self.n_patches, decoder_dim))

    def embed_weights(self):
        return (
            row.expand(size, -1) / size
            for row, size in zip(self.embed_rows, self.sizes, strict=True)
        )

    def reconstruct_weights(self):
        return (
            row.expand(size, -1)
            for row, size in zip(self.reconstruct_rows, self.sizes, strict=True)
        )

    def initialise(self, how="scaled", size=0.25):
        nn.init.normal_(self.embed_rows)
        nn.init.normal_(self.reconstruct_rows, std=0.02)


class OtherTokenizer(MeanTokenizer):
    pass


@pytest.mark.slow
def test_a_tokenizer_class_is_accepted_and_loaded_only_if_it_is_given(cohort, tmp_path):
    encoder = nerve.NERVE(tokenizer=MeanTokenizer, **QUICK, n_components=8).fit(cohort)
    assert isinstance(encoder.module_.tokenizer, MeanTokenizer)
    encoder.save(tmp_path)
    loaded = nerve.NERVE.load(tmp_path, device="cpu", tokenizer=MeanTokenizer)
    np.testing.assert_array_equal(loaded.transform(cohort), encoder.transform(cohort))
    with pytest.raises(
        NerveError, match=r"its tokenizer is .*:MeanTokenizer.*NERVE\.load\(folder, tokenizer=Mean"
    ):
        nerve.NERVE.load(tmp_path)
    with pytest.raises(
        NerveError, match=r"its tokenizer is .*:MeanTokenizer, expected .*:OtherTokenizer"
    ):
        nerve.NERVE.load(tmp_path, tokenizer=OtherTokenizer)
    with pytest.raises(NerveError, match="class derived from"):
        nerve.NERVE(tokenizer=dict).check_parameters()
    assert (
        nerve.NERVE(tokenizer=TOKENIZERS["shared"]).described_parameters()["tokenizer"] == "shared"
    )
