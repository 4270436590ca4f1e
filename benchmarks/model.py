"""NERVE's training step and embedding at the paper's size, on one thread, against references in the same run.

The reference model gathers every patch from the matrix and pads it to the largest (`tests/reference/nerve_literal.py`).
Model FLOPs count the matrix products that the model needs: tokens of visible patches, encoder, decoder, reconstruction
of masked patches; forward and backward, no gradient of the data. The machine's own rate is that of a 2048³ product.
"""

import multiprocessing
import time
from pathlib import Path

import numpy as np
import torch
from tests.reference.nerve_literal import GatherAndPad

import nerve
from nerve.core import MaskedAutoencoder
from nerve.core.patching import Patching
from nerve.core.training import ArrayDataset, TrainingSettings, choose_device, train

BATCH = 128


def paper_size(n_regions: int = 400, networks: int = 17, people: int = BATCH):
    """Model, matrices (participants, R, R) and packed FC (participants, S)."""
    patching = Patching.from_parcellation(
        nerve.load_parcellation(f"schaefer{n_regions}-{networks}")
    )
    generator = torch.Generator().manual_seed(0)
    fc = 0.25 * torch.randn(people, n_regions, n_regions, generator=generator)
    fc = (fc + fc.transpose(1, 2)) / 2
    return MaskedAutoencoder(patching), fc, torch.from_numpy(patching.pack(fc.numpy()))


def forward_flops(model: MaskedAutoencoder, tokens: int) -> float:
    """Encoder FLOPs of one participant with this many tokens: 2 · weights · tokens, and the attention products."""
    dim, depth = model.positions.shape[1], len(model.encoder)
    return depth * (2 * 12 * dim**2 * tokens + 4 * tokens**2 * dim)


def training_flops(model: MaskedAutoencoder) -> float:
    """FLOPs of one participant in a training step."""
    n_patches, entries = model.patching.n_patches, model.patching.n_entries
    dim, width = model.positions.shape[1], model.decoder_positions.shape[1]
    share = model.n_visible / n_patches
    tokens, everything = 1 + model.n_visible, 1 + n_patches
    embed = (
        2 * entries * dim * share * 2
    )  # forward, and the gradient of the weights; data need none
    decoder = 2 * 12 * width**2 * everything + 4 * everything**2 * width + 2 * dim * width * tokens
    rebuild = 2 * entries * width * (1 - share)
    return embed + 3 * (forward_flops(model, tokens) + decoder + rebuild)


def embedding_flops(model: MaskedAutoencoder) -> float:
    """FLOPs of one participant in an embedding."""
    dim = model.positions.shape[1]
    return 2 * model.patching.n_entries * dim + forward_flops(model, 1 + model.patching.n_patches)


def best_seconds(actions: dict, repeats: int = 4) -> dict:
    """Least wall time of each action, taken in turns so that a busy moment meets them all."""
    best = dict.fromkeys(actions, float("inf"))
    for action in actions.values():
        action()
    for _ in range(repeats):
        for name, action in actions.items():
            began = time.perf_counter()
            action()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def steps_of(model, fc, packed) -> dict:
    """A training step of ours and of the literal version, an embedding, a matrix product."""
    literal = GatherAndPad(model)
    noise = torch.rand(
        len(fc), model.patching.n_patches, generator=torch.Generator().manual_seed(1)
    )
    square = torch.randn(2048, 2048)
    rows, weight = torch.randn(len(fc) * (1 + model.n_visible), 256), torch.randn(256, 1024)

    def ours():
        model.zero_grad()
        model.masked_loss(packed, *model.choose_masks(noise)).backward()

    def gathered():
        model.zero_grad()
        literal.training_loss(fc, noise).backward()

    def embed():
        with torch.inference_mode():
            for start in range(0, len(packed), 32):
                model.embed(packed[start : start + 32])

    return {
        "ours": ours,
        "literal": gathered,
        "embed": embed,
        "product": lambda: square @ square,
        "own": lambda: rows @ weight,
    }


def step_memory(kind: str) -> float:
    """Peak memory that a step adds, in MB; called in a new process, whose memory is its own."""
    torch.set_num_threads(1)
    choose_device("cpu")
    action = steps_of(*paper_size())[kind]
    Path("/proc/self/clear_refs").write_text(
        "5"
    )  # the kernel's peak counter starts again from here
    before = resident("VmRSS")
    action()
    return resident("VmHWM") - before


def resident(field: str) -> float:
    """A line of /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def loop_overhead(model, packed, seconds_of_step: float) -> float:
    """Time of a step in the training loop (data, clipping, AdamW, checkpoint of nothing) over the bare step."""
    settings = TrainingSettings(
        max_steps=3, batch_size=len(packed), validation_fraction=0, device="cpu"
    )
    began = time.perf_counter()
    train(model, ArrayDataset(packed.numpy()), settings)
    return (time.perf_counter() - began) / 3 / seconds_of_step


def growth() -> list[dict]:
    """Milliseconds per participant against regions, networks and batch."""
    cases = [(f"R={r}, 17 networks, batch 16", r, 17, 16) for r in (100, 200, 400, 700, 1000)]
    cases += [("R=400, 7 networks, batch 16", 400, 7, 16)]
    cases += [(f"R=400, 17 networks, batch {n}", 400, 17, n) for n in (4, 64)]
    rows = []
    for name, regions, networks, people in cases:
        model, fc, packed = paper_size(regions, networks, people)
        actions = steps_of(model, fc, packed)
        seconds = best_seconds({"ours": actions["ours"], "embed": actions["embed"]}, repeats=2)
        for what, key in (("training", "ours"), ("embedding", "embed")):
            value = 1000 * seconds[key] / people
            rows.append({"name": f"{what}, ms per participant: {name}", "value": value})
    return rows


def run() -> list[dict]:
    """Rows of the benchmark table."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    choose_device("cpu")
    model, fc, packed = paper_size()
    seconds = best_seconds(steps_of(model, fc, packed))
    rate = 2 * 2048**3 / seconds["product"]
    own_rate = 2 * BATCH * (1 + model.n_visible) * 256 * 1024 / seconds["own"]
    used = training_flops(model) * BATCH / seconds["ours"]
    used_embed = embedding_flops(model) * BATCH / seconds["embed"]
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, maxtasksperchild=1) as pool:
        memory = {kind: pool.apply(step_memory, (kind,)) for kind in ("ours", "literal")}
    rows = [
        row(
            "training step, seconds",
            seconds["ours"],
            seconds["literal"],
            seconds["literal"] / seconds["ours"],
            1.4,
        ),
        row("training, GFLOP/s of the machine's", used / 1e9, rate / 1e9, used / rate, 0.70),
        row(
            "the same, of a product of the model's largest shape",
            used / 1e9,
            own_rate / 1e9,
            used / own_rate,
            np.nan,
        ),
        row(
            "embedding, GFLOP/s of the machine's",
            used_embed / 1e9,
            rate / 1e9,
            used_embed / rate,
            np.nan,
        ),
        row(
            "embedding, participants per second against training",
            BATCH / seconds["embed"],
            BATCH / seconds["ours"],
            seconds["ours"] / seconds["embed"],
            2.5,
        ),
        row(
            "the same ratio if both ran at the machine's rate",
            training_flops(model) / 1e9,
            embedding_flops(model) / 1e9,
            training_flops(model) / embedding_flops(model),
            np.nan,
        ),
        row(
            "peak memory of a step, MB",
            memory["ours"],
            memory["literal"],
            memory["literal"] / memory["ours"],
            1.0,
        ),
        row(
            "loop around the step, times",
            np.nan,
            np.nan,
            loop_overhead(model, packed, seconds["ours"]),
            np.nan,
        ),
    ]
    rows += growth()
    torch.set_num_threads(threads)
    return rows


def row(name: str, value: float, reference: float, ratio: float, target: float) -> dict:
    return {"name": name, "value": value, "reference": reference, "ratio": ratio, "target": target}
