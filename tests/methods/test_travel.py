"""Models that travel: packed, found by name, and warned about where a cohort is not like their training cohort."""

import json
import shutil
import zipfile

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from nerve._utils.errors import NerveError, NerveWarning
from nerve.cli import app
from nerve.data.cohort import Cohort
from nerve.data.parcellation import load_parcellation
from nerve.data.quality.likeness import Likeness, Signature, likeness
from nerve.methods import load_method, pretrained
from nerve.methods.nerve import NERVE
from nerve.methods.pretrained import pack
from nerve.methods.runs import embed_file

ATLAS = load_parcellation("schaefer100-17")


def participants(seed, change=lambda series: series, n=14):
    """A cohort whose networks have signals of their own over a global one; `change` is done to the time series."""
    rng = np.random.default_rng(seed)
    network = np.unique(ATLAS.networks, return_inverse=True)[1]
    share = np.random.default_rng(1).uniform(
        0.4, 1.6, size=ATLAS.n_regions
    )  # what the cohorts have in common
    own = rng.normal(size=(n, 120, network.max() + 1))[:, :, network] * share
    series = own + rng.normal(size=(n, 120, 1)) + 0.5 * rng.normal(size=(n, 120, ATLAS.n_regions))
    fc = np.stack([np.corrcoef(change(one).T) for one in series])
    table = pd.DataFrame({"participant_id": [f"secret{seed}x{i}" for i in range(n)]})
    return Cohort(fc, table, ATLAS, name=f"cohort{seed}")


def changed(cohort, change):
    return Cohort(change(np.array(cohort.connectivity)), cohort.participants, ATLAS, name="changed")


def in_fisher_z(fc):
    return np.arctanh(fc * (1 - 1e-3 * np.eye(fc.shape[1])))


def without_global_signal(series):
    mean = series.mean(1, keepdims=True)
    return series - mean @ (mean.T @ series) / (mean**2).sum()


@pytest.fixture(scope="module")
def trained() -> NERVE:
    settings = {"dim": 16, "epochs": 1, "n_components": 4, "device": "cpu"}
    return NERVE.from_preset("small", **settings).fit(participants(0))


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    return trained.save(tmp_path_factory.mktemp("models") / "run")


# ---- likeness


def test_other_participants_of_the_same_population_look_like_the_training_cohort(trained):
    like = trained.likeness(participants(1))
    assert like.words.startswith("group means correlate by 0.9")
    assert not like.differences


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            lambda: changed(participants(1), in_fisher_z),
            r"Values go up to \d\.\d+.*Fisher z.*--values z",
        ),
        (
            lambda: participants(1, without_global_signal),
            r"\d+% of the entries are negative.*regressed out in this cohort",
        ),
        (
            lambda: changed(participants(1), lambda fc: np.where(np.eye(100), 1, fc * 0.3)),
            "spread by 0.*another measure",
        ),
        (
            lambda: changed(participants(1), lambda fc: fc[:, _SEVEN[:, None], _SEVEN]),
            r"group mean correlates by 0\.\d+.*order of schaefer100-7",
        ),
    ],
    ids=["Fisher z", "global signal", "spread", "order"],
)
def test_a_planted_difference_is_reported(trained, other, sentence):
    found = " ".join(trained.likeness(other()).differences)
    assert pd.Series([found]).str.contains(sentence, regex=True).all(), found


_SEVEN = ATLAS.positions_of(
    load_parcellation("schaefer100-7")
)  # rows in 7-network order under the labels of 17


def test_the_other_way_round_the_global_signal_is_the_models():
    found = likeness(
        Signature.of(participants(0, without_global_signal)), participants(1)
    ).differences
    assert "regressed out in the model's training cohort and not in this cohort" in " ".join(found)


def test_a_cohort_of_fewer_than_ten_has_no_signature_and_no_comparison(trained):
    assert Signature.of(participants(0, n=9)) is None
    assert trained.likeness(participants(1, n=9)) == Likeness(
        "not compared: fewer than 10 participants"
    )


@pytest.mark.slow
def test_embed_and_check_warn_with_a_figure(run, tmp_path):
    changed(participants(1), in_fisher_z).save(tmp_path / "other")
    participants(2).save(tmp_path / "same")
    for name, warned in (("other", True), ("same", False)):
        out = tmp_path / f"{name}.tsv"
        embedded = CliRunner().invoke(
            app, ["embed", str(run), str(tmp_path / name), str(out), "--device", "cpu"]
        )
        assert out.is_file()
        assert (tmp_path / f"{name}_likeness.svg").is_file() == warned
        assert ("other_likeness.svg" in embedded.output) == warned
    words = [
        "check",
        str(tmp_path / "other"),
        "--model",
        str(run),
        "--figure",
        str(tmp_path / "other.png"),
    ]
    checked = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert "like the model's" in checked.output
    assert "may be Fisher z" in " ".join(checked.output.split())
    assert (tmp_path / "other.png").read_bytes().startswith(b"\x89PNG")
    with pytest.warns(
        NerveWarning, match="does not look like what the model was trained on.*Fisher z"
    ):
        embed_file(run, Cohort.load(tmp_path / "other"), tmp_path / "e.tsv", device="cpu")


def test_a_comparison_is_kept_for_the_report(trained, tmp_path):
    like = trained.likeness(changed(participants(1), in_fisher_z))
    like.save(tmp_path)
    again = Likeness.load(tmp_path)
    assert (again.words, again.differences) == (like.words, like.differences)
    np.testing.assert_array_equal(again.compared.mean, like.compared.mean)
    assert again.trained.numbers() == like.trained.numbers()
    (tmp_path / "likeness.json").write_text("[]")
    with pytest.raises(NerveError, match="no comparison of two cohorts"):
        Likeness.load(tmp_path)


# ---- one file


@pytest.mark.slow
def test_a_packed_model_gives_the_same_numbers_and_contains_no_ids(trained, run, tmp_path):
    archive = pack(run, tmp_path / "model.zip")
    expected = trained.transform(participants(1))
    for loaded in (
        NERVE.from_pretrained(archive, device="cpu"),
        load_method(archive, device="cpu"),
    ):
        np.testing.assert_array_equal(loaded.transform(participants(1)), expected)
        np.testing.assert_array_equal(loaded.signature_.mean, trained.signature_.mean)
    np.testing.assert_array_equal(
        NERVE.from_pretrained(run, device="cpu").transform(participants(1)), expected
    )
    with zipfile.ZipFile(archive) as packed:
        assert set(packed.namelist()) == {
            "model.safetensors",
            "config.json",
            "README.md",
            "history.tsv",
        }
        assert packed.read("README.md").startswith(b"---\nlibrary_name: nerve\n")
        assert not any(b"secret" in packed.read(name) for name in packed.namelist())
    first = archive.read_bytes()
    with pytest.raises(NerveError, match="not replaced"):
        pack(run, archive)
    assert pack(run, archive, overwrite=True).read_bytes() == first


@pytest.mark.slow
def test_what_is_no_archive_of_a_model_is_refused(run, tmp_path):
    archive, bad = pack(run, tmp_path / "model.zip"), tmp_path / "bad.zip"
    whole = {
        name: zipfile.ZipFile(archive).read(name) for name in zipfile.ZipFile(archive).namelist()
    }

    def refused(contents, sentence):
        with zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, content in contents.items():
                packed.writestr(name, content)
        with pytest.raises(NerveError, match=sentence):
            NERVE.from_pretrained(bad)

    refused({**whole, "../evil.py": b"x"}, r"bad\.zip: it holds .*expected model.safetensors")
    refused({"config.json": b"{}"}, r"bad\.zip: it holds config.json, expected")
    refused(
        {**whole, "README.md": b"0" * (2**27 + 1)},
        r"README\.md: its [\d,]+ bytes unpack to 134,217,729",
    )
    refused({**whole, "config.json": b"{}"}, r"bad\.zip/config\.json: it does not describe a model")
    bad.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(NerveError, match=r"bad\.zip: it is no readable archive of a model"):
        NERVE.from_pretrained(bad)
    bad.write_bytes(b"mine")
    with pytest.raises(NerveError, match="not written by this command"):
        pack(run, bad, overwrite=True)
    assert bad.read_bytes() == b"mine"


@pytest.mark.slow
def test_tokens_go_into_an_array_whether_asked_for_or_the_models_own(run, tmp_path):
    settings = {"dim": 16, "epochs": 0, "pooling": "tokens", "device": "cpu"}
    own = NERVE.from_preset("small", **settings).fit(participants(0)).save(tmp_path / "run")
    for model, pooling in ((run, "tokens"), (own, None)):
        with pytest.raises(
            NerveError, match=r"e\.tsv: tokens are a three-dimensional array.*\.npy"
        ):
            embed_file(model, participants(1), tmp_path / "e.tsv", pooling=pooling, device="cpu")
    assert embed_file(own, participants(1), tmp_path / "e.npy", device="cpu").ndim == 3


def test_a_changed_signature_is_refused(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "signature": config["signature"] | {"n": 3}})
    )
    with pytest.raises(NerveError, match="signature of the training cohort cannot be read"):
        NERVE.load(folder)


def test_packaged_models_are_found_by_name(trained, run, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "PACKAGED", tmp_path)
    assert "No trained model comes with" in CliRunner().invoke(app, ["models", "list"]).output
    pack(run, tmp_path / "small-419.zip")
    assert "small-419 " in CliRunner().invoke(app, ["models", "list"]).output
    assert CliRunner().invoke(app, ["models", "show", "small-419"]).output.startswith("# NERVE")
    assert NERVE.from_pretrained("small-419", device="cpu").parcellation_ == ATLAS
    with pytest.raises(NerveError, match=r"no such model.*Did you mean 'small-419'"):
        NERVE.from_pretrained("small-420")


@pytest.mark.slow
@pytest.mark.parametrize("view", ["fc", "tangent", "shrunk"])
def test_a_saved_model_does_not_reveal_the_mean_of_few_held_out_participants(view):
    cohort = participants(0, n=12)
    encoder = NERVE.from_preset(
        "small", view=view, epochs=1, dim=8, heads=2, patching="grid4", device="cpu"
    ).fit(cohort)
    training, held_out = encoder.validation_split(cohort, encoder.training_settings())
    assert len(held_out) == 1
    matrices = encoder.view_.apply(np.asarray(cohort.connectivity))
    above = np.triu_indices(cohort.n_regions, 1)
    mean = encoder.patching_.unpack(encoder.module_.mean.numpy())[above]
    everyone = matrices.mean(axis=0)[
        above
    ]  # of fc the signature, of shrunk zero: known from the folder
    told = len(cohort) * everyone - len(training) * mean
    alike = [abs(np.corrcoef(told - everyone, one[above] - everyone)[0, 1]) for one in matrices]
    assert alike[held_out[0]] < 0.9


@pytest.mark.slow
def test_a_signature_leaves_out_no_participant_or_at_least_ten():
    assert [Signature.of(participants(0, n=n)).n for n in (256, 257, 265, 266)] == [
        256,
        257,
        265,
        256,
    ]


def test_patches_of_the_users_own_table_travel_as_groups_without_its_path(tmp_path):
    import numpy as np
    import pandas as pd

    import nerve

    fc = np.stack([np.corrcoef(one) for one in np.random.default_rng(0).normal(size=(12, 8, 40))])
    parcellation = nerve.Parcellation(tuple("abcdefgh"), tuple("AAAABBBB"), name="letters")
    table = pd.DataFrame({"label": list("abcdefgh"), "network": list("XXYYXXYY")})
    path = tmp_path / "secret.tsv"
    table.to_csv(path, sep="\t", index=False)
    options = {"epochs": 1, "dim": 8, "depth": 1, "device": "cpu"}
    model = nerve.NERVE(parcellation, patching=str(path), **options).fit(fc)
    folder = model.save(tmp_path / "model")
    path.unlink()
    assert "secret" not in (folder / "config.json").read_text() + (folder / "README.md").read_text()
    again = nerve.NERVE.load(folder, device="cpu")
    assert again.patching_ == model.patching_
    np.testing.assert_allclose(again.transform(fc), model.transform(fc), atol=1e-5)
