"""Forty lines of the package, over all of its parts, each with what breaks it and the tests that must notice."""

from typing import NamedTuple


class Mutation(NamedTuple):
    """One line that is broken, and who must notice."""

    name: str
    file: str  # below src/nerve
    old: str  # the line without indentation and comment; it stands there exactly once
    new: str
    tests: tuple[str, ...]  # files, or single tests where a file takes long


PATCHING = "tests/test_patching.py"
VIEWS = "tests/test_views.py"
TOKENIZERS = "tests/models/test_tokenizers.py"
ENCODER = "tests/models/test_masked_autoencoder.py"
LOOP = "tests/training/test_loop.py"
RIDGE = "tests/evaluation/test_kernel_ridge.py"
STATISTICS = "tests/evaluation/test_statistics.py"
ADJUSTMENT = "tests/evaluation/test_adjustment.py"
TABLES = "tests/report/test_tables.py"
EXPERIMENT = "tests/experiments/test_experiment.py"

MUTATIONS = (
    # ---- patching, parcellation, connectivity, views
    Mutation(
        "pair order: patches go down columns instead of along rows",
        "patching.py",
        "self.pairs = np.stack(np.triu_indices(n_groups), axis=1)",
        "self.pairs = np.stack(np.tril_indices(n_groups)[::-1], axis=1)",
        (PATCHING,),
    ),
    Mutation(
        "unpacking: nothing is written below the diagonal",
        "patching.py",
        "places[self.cols, self.rows] = np.arange(self.n_entries)",
        "places[self.rows, self.cols] = np.arange(self.n_entries)",
        (PATCHING,),
    ),
    Mutation(
        "grid: neighbours are dealt out instead of kept together",
        "patching.py",
        "return cls(np.arange(n_regions) // size)",
        "return cls(np.arange(n_regions) % -(-n_regions // size))",
        (PATCHING,),
    ),
    Mutation(
        "label alignment: the inverse of the order that is wanted",
        "parcellation.py",
        "return np.array([position.get(key, -1) for key in there], int)",
        "return np.argsort([position.get(key, -1) for key in there])",
        ("tests/test_parcellation.py",),
    ),
    Mutation(
        "motion of the first volume: put last where a file leaves it out",
        "connectivity.py",
        "motion = np.concatenate([[0.0], motion])",
        "motion = np.concatenate([motion, [0.0]])",
        ("tests/test_connectivity.py",),
    ),
    Mutation(
        "average of scans: of r instead of Fisher z",
        "readers/matrices.py",
        "z = fisher_z(matrices) if correlations else matrices",
        "z = matrices",
        ("tests/readers/test_ingest.py",),
    ),
    Mutation(
        "whitening: by the inverse instead of its root",
        "views.py",
        'self.arrays = {"whitening": (vectors / np.sqrt(values)) @ vectors.T}',
        'self.arrays = {"whitening": (vectors / values) @ vectors.T}',
        (VIEWS,),
    ),
    Mutation(
        "shrinkage: the diagonal shrinks too",
        "views.py",
        "shrunk[:, diagonal, diagonal] = 1.0",
        "shrunk[:, diagonal, diagonal] = 1.0 - self.shrinkage / 2",
        (VIEWS,),
    ),
    Mutation(
        "components: not of unit length",
        "components.py",
        "components = centred.T @ (vectors[:, :kept] / np.sqrt(eigenvalues[:kept])).astype(values.dtype)",
        "components = centred.T @ (vectors[:, :kept] / eigenvalues[:kept]).astype(values.dtype)",
        ("tests/test_components.py",),
    ),
    # ---- models and training
    Mutation(
        "mask complement: one visible patch counts as masked too",
        "models/masked_autoencoder.py",
        "return order[:, : self.n_visible].sort(1).values, order[:, self.n_visible :].sort(1).values",
        "return order[:, : self.n_visible].sort(1).values, order[:, self.n_visible - 1 :].sort(1).values",
        (ENCODER,),
    ),
    Mutation(
        "positions: of the first patches instead of the visible ones",
        "models/masked_autoencoder.py",
        "tokens = tokens + (positions if visible is None else nn.functional.embedding(visible, positions))",
        "tokens = tokens + (positions if visible is None else positions[: visible.shape[1]])",
        (ENCODER,),
    ),
    Mutation(
        "whose patch: tokens of one participant are given to another",
        "models/tokenizers.py",
        "self.participants_of_patch = (self.order // patches.shape[1]).split(self.counts)",
        "self.participants_of_patch = (self.order % len(patches)).split(self.counts)",
        (TOKENIZERS,),
    ),
    Mutation(
        "bilinear factors: rows and columns change places",
        "models/tokenizers.py",
        "product = groups[row][:, None] * groups[column][None]",
        "product = groups[column][:, None] * groups[row][None]",
        (TOKENIZERS,),
    ),
    Mutation(
        "draws: from the global generator",
        "training/draws.py",
        "return torch.rand(self.total, *shape, generator=self.generator)[self.rows].to(self.device)",
        "return torch.rand(self.total, *shape)[self.rows].to(self.device)",
        ("src/nerve/training/draws.py",),
    ),
    Mutation(
        "resume RNG: a resumed run draws the masks of the step before",
        "training/loop.py",
        "draws = Draws(self.settings.seed, self.step, len(rows), share, self.device)",
        'draws = Draws(self.settings.seed, self.step - (vars(self).setdefault("at", self.step) > 0), len(rows), share)',
        (f"{LOOP}::test_resume_after_a_kill_is_bit_for_bit",),
    ),
    Mutation(
        "warm-up: begins at nothing",
        "training/settings.py",
        "return self.lr * (step + 1) / warmup",
        "return self.lr * step / warmup",
        (LOOP,),
    ),
    Mutation(
        "held-out people: all of one cohort",
        "training/sources.py",
        "held_out.append(generator.permutation(rows)[:count])",
        "held_out.append(np.arange(count))",
        (LOOP,),
    ),
    Mutation(
        "weight decay: through the gradient in AdamW",
        "training/optimizers.py",
        'function = adamw if self.settings.optimizer == "adamw" else adam',
        "function = adam",
        ("tests/training/test_optimizers.py",),
    ),
    # ---- files, cohorts, readers, quality, simulation
    Mutation(
        "atomic rename: the final file is written over in place",
        "files.py",
        "os.replace(name, path)",
        "path.write_bytes(Path(name).read_bytes()), os.unlink(name)",
        ("tests/test_files.py",),
    ),
    Mutation(
        "lock: a held one is taken",
        "locks.py",
        "return error.errno not in _HELD",
        "return True",
        ("tests/test_locks.py",),
    ),
    Mutation(
        "rows of a table: by place instead of by id",
        "store.py",
        "return np.array([row_of[one] for one in wanted], int)",
        "return np.arange(len(wanted))",
        ("tests/test_cohort.py",),
    ),
    Mutation(
        "repeated scans: the last for the first",
        "readers/planning.py",
        'pick = 0 if rule == "first" else -1',
        'pick = 0 if rule == "last" else -1',
        ("tests/readers/test_ingest.py",),
    ),
    Mutation(
        "Fisher z: covariances are taken for it",
        "readers/matrices.py",
        'return "z" if ones or blank else ""',
        'return "z"',
        ("tests/readers/test_matrices.py",),
    ),
    Mutation(
        "order of regions: never doubted",
        "quality/order.py",
        "return contrast > max(other * CLEARLY_HIGHER, other + AT_LEAST)",
        "return contrast > 9 * max(other * CLEARLY_HIGHER, other + AT_LEAST)",
        ("tests/test_quality.py",),
    ),
    Mutation(
        "a second visit: by a person with another trait",
        "simulate/plan.py",
        "for spread, visit in ((population.OWN_COUPLING, 0), (population.SESSION_COUPLING, self.session)):",
        "for spread, visit in ((population.OWN_COUPLING, self.session), (population.SESSION_COUPLING, self.session)):",
        ("tests/test_simulate.py",),
    ),
    # ---- evaluation
    Mutation(
        "no family: everyone without one is of one family",
        "evaluation/folds.py",
        "codes[lonely] = codes.max(initial=-1) + 1 + np.arange(lonely.sum())",
        "codes[lonely] = codes.max(initial=-1) + 1",
        ("tests/evaluation/test_folds.py",),
    ),
    Mutation(
        "covariate fold: coefficients from everyone, test people too",
        "evaluation/predict.py",
        "regression = CovariateRegression().fit(table.iloc[train], raw[train, None])",
        "regression = CovariateRegression().fit(table.iloc[both], raw[both, None])",
        ("tests/evaluation/test_leakage.py",),
    ),
    Mutation(
        "unseen category: counts as none of the known ones",
        "evaluation/covariates.py",
        "one_hot[~one_hot.any(axis=1)] = np.nan",
        "one_hot[~one_hot.any(axis=1)] = 0.0",
        (ADJUSTMENT,),
    ),
    Mutation(
        "ComBat: scales are multiplied once more",
        "evaluation/combat.py",
        "standard = (self._standardise(features, table) - self.shift_[code]) / self.scale_[code]",
        "standard = (self._standardise(features, table) - self.shift_[code]) * self.scale_[code]",
        (ADJUSTMENT,),
    ),
    Mutation(
        "λ choice: as good as the worst is good enough",
        "evaluation/kernel_ridge.py",
        "best = self.inner_scores_.max(axis=0)",
        "best = self.inner_scores_.min(axis=0)",
        (RIDGE,),
    ),
    Mutation(
        "bias: what participants have in common is not taken away again",
        "evaluation/kernel_ridge.py",
        "self.bias_ = centre - mean @ self.weights_",
        "self.bias_ = centre + mean @ self.weights_",
        (RIDGE,),
    ),
    Mutation(
        "median heuristic: of the distances, not half of it",
        "evaluation/kernels.py",
        "return 1.0 / (2.0 * max(float(np.median(distances)), np.finfo(float).tiny))",
        "return 1.0 / max(float(np.median(distances)), np.finfo(float).tiny)",
        (RIDGE,),
    ),
    Mutation(
        "bootstrap index: the last person is never drawn",
        "evaluation/resampling.py",
        "drawn = np.random.default_rng(seed).integers(0, n_units, (n_resamples, n_units))",
        "drawn = np.random.default_rng(seed).integers(0, n_units - 1, (n_resamples, n_units))",
        (STATISTICS,),
    ),
    Mutation(
        "ties of the AUC: count as won",
        "evaluation/resampling.py",
        "below = np.cumsum(down, axis=1) - 0.5 * down",
        "below = np.cumsum(down, axis=1)",
        (STATISTICS,),
    ),
    Mutation(
        "permutation p: the observed order is not counted",
        "evaluation/resampling.py",
        "return float((1 + np.sum(null >= observed)) / (1 + len(null)))",
        "return float(np.sum(null >= observed) / len(null))",
        (STATISTICS,),
    ),
    Mutation(
        "permutations: across folds and sites",
        "evaluation/resampling.py",
        "order[places] = np.lexsort((rng.random(n), unit, luck, size, block))",
        "order[places] = np.lexsort((rng.random(n), unit, luck, size))",
        ("tests/evaluation/test_folds.py",),
    ),
    # ---- interpretation, experiments, report
    Mutation(
        "the mean that hides a patch: of everyone, test people too",
        "interpret/occlusion.py",
        "return {label: (total - sums[label]) / (used - int((folds == label).sum())) for label in labels}",
        "return {label: total / used for label in labels}",
        ("tests/interpret/test_importance.py::test_the_mean_that_hides_a_patch_is_blind_to_the_test_fold",),
    ),
    Mutation(
        "chosen variant: the worst in the inner folds",
        "experiments/select.py",
        "self.chosen_ = scores.argmax(axis=0)",
        "self.chosen_ = scores.argmin(axis=0)",
        (f"{EXPERIMENT}::test_the_chosen_variant_is_the_one_that_predicts_training_people",),
    ),
    Mutation(
        "shading: a tie at the top is shaded",
        "report/tables.py",
        "shaded = p < LEVEL and printed.count(best) == 1",
        "shaded = p < LEVEL",
        (TABLES,),
    ),
    Mutation(
        "escaping: what users named goes into the page as it is",
        "report/page.py",
        "environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)",
        "environment = Environment(autoescape=False, trim_blocks=True, lstrip_blocks=True)",
        ("tests/report/test_page.py::test_hostile_text_stays_text",),
    ),
)
