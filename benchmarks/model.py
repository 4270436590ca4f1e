"""NERVE's training step and embedding at the paper's size, on one thread, against references in the same run.

The reference model gathers every patch from the matrix and pads it to the largest
(`tests/reference/nerve_literal.py`). Model FLOPs count the matrix products that the model needs:
tokens of visible patches, encoder, decoder, reconstruction of masked patches; forward and backward,
no gradient of the data. The machine's own rate is that of a 2048³ product.
"""

import math
import multiprocessing
import time
from pathlib import Path

import torch
from tests.reference.nerve_literal import GatherAndPad

import nerve
from benchmarks import row
from nerve.core import MaskedAutoencoder
from nerve.core.patching import Patching
from nerve.core.training import ArrayDataset, TrainingSettings, choose_device, train

BATCH = 128


def paper_size(n_regions: int = 400, networks: int = 17, n_participants: int = BATCH):
    """A model, random matrices (participants, R, R) and the same packed (participants, S)."""
    patching = Patching.from_parcellation(
        nerve.load_parcellation(f"schaefer{n_regions}-{networks}")
    )
    generator = torch.Generator().manual_seed(0)
    fc = 0.25 * torch.randn(n_participants, n_regions, n_regions, generator=generator)
    fc = (fc + fc.transpose(1, 2)) / 2
    return MaskedAutoencoder(patching), fc, torch.from_numpy(patching.pack(fc.numpy()))


def forward_flops(model: MaskedAutoencoder, n_tokens: int) -> float:
    """Encoder FLOPs of one participant: 2 · weights · tokens, and the attention products."""
    dim = model.positions.shape[1]
    depth = len(model.encoder)
    return depth * (2 * 12 * dim**2 * n_tokens + 4 * n_tokens**2 * dim)


def training_flops(model: MaskedAutoencoder) -> float:
    """FLOPs of one participant in a training step."""
    n_patches = model.patching.n_patches
    n_entries = model.patching.n_entries
    dim = model.positions.shape[1]
    decoder_dim = model.decoder_positions.shape[1]
    visible_share = model.n_visible / n_patches
    n_visible_tokens = 1 + model.n_visible
    n_tokens = 1 + n_patches
    # Forward, and the gradient of the weights; the data need no gradient.
    embed = 2 * n_entries * dim * visible_share * 2
    decoder = 2 * 12 * decoder_dim**2 * n_tokens + 4 * n_tokens**2 * decoder_dim
    decoder += 2 * dim * decoder_dim * n_visible_tokens
    reconstruct = 2 * n_entries * decoder_dim * (1 - visible_share)
    encoder = forward_flops(model, n_visible_tokens)
    return embed + 3 * (encoder + decoder + reconstruct)


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


def make_actions(model, fc, packed) -> dict:
    """What is timed: a training step of ours and of the literal version, an embedding, two products."""
    literal_model = GatherAndPad(model)
    noise = torch.rand(
        len(fc), model.patching.n_patches, generator=torch.Generator().manual_seed(1)
    )
    square = torch.randn(2048, 2048)
    # The largest product of the model: tokens of a batch by the first weights of an MLP.
    tokens = torch.randn(len(fc) * (1 + model.n_visible), 256)
    weight = torch.randn(256, 1024)

    def training_step():
        model.zero_grad()
        model.masked_loss(packed, *model.choose_masks(noise)).backward()

    def literal_training_step():
        model.zero_grad()
        literal_model.training_loss(fc, noise).backward()

    def embed():
        with torch.inference_mode():
            for start in range(0, len(packed), 32):
                model.embed(packed[start : start + 32])

    return {
        "training step": training_step,
        "literal training step": literal_training_step,
        "embedding": embed,
        "square product": lambda: square @ square,
        "largest product of the model": lambda: tokens @ weight,
    }


def step_memory(name: str) -> float:
    """Peak memory that an action adds, in MB; called in a new process, whose memory is its own."""
    torch.set_num_threads(1)
    choose_device("cpu")
    action = make_actions(*paper_size())[name]
    # The kernel's peak counter starts again from here.
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_status("VmRSS")
    action()
    return memory_status("VmHWM") - before


def memory_status(field: str) -> float:
    """A field of /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def loop_overhead(model, packed, bare_seconds: float) -> float:
    """Time of a step in the training loop (data, clipping, AdamW) over that of the bare step."""
    settings = TrainingSettings(
        max_steps=3, batch_size=len(packed), validation_fraction=0, device="cpu"
    )
    began = time.perf_counter()
    train(model, ArrayDataset(packed.numpy()), settings)
    return (time.perf_counter() - began) / 3 / bare_seconds


def scaling_rows() -> list[dict]:
    """Milliseconds per participant against regions, networks and batch size."""
    cases = []
    for n_regions in (100, 200, 400, 700, 1000):
        cases.append((n_regions, 17, 16))
    cases += [(400, 7, 16), (400, 17, 4), (400, 17, 64)]
    rows = []
    for n_regions, n_networks, batch_size in cases:
        actions = make_actions(*paper_size(n_regions, n_networks, batch_size))
        chosen = {"training": actions["training step"], "embedding": actions["embedding"]}
        seconds = best_seconds(chosen, repeats=2)
        size = f"R={n_regions}, {n_networks} networks, batch {batch_size}"
        for name in chosen:
            milliseconds = 1000 * seconds[name] / batch_size
            rows.append(row(f"{name}, ms per participant: {size}", milliseconds))
    return rows


def run() -> list[dict]:
    """Rows of the benchmark table."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    choose_device("cpu")
    model, fc, packed = paper_size()
    seconds = best_seconds(make_actions(model, fc, packed))
    step_seconds = seconds["training step"]
    literal_seconds = seconds["literal training step"]
    embedding_seconds = seconds["embedding"]

    # In GFLOP/s. The machine's rate is that of a large product; the second, of one in the model.
    machine_rate = 2 * 2048**3 / seconds["square product"] / 1e9
    n_tokens = BATCH * (1 + model.n_visible)
    product_rate = 2 * n_tokens * 256 * 1024 / seconds["largest product of the model"] / 1e9
    training_gflops = training_flops(model) / 1e9
    embedding_gflops = embedding_flops(model) / 1e9
    training_rate = training_gflops * BATCH / step_seconds
    embedding_rate = embedding_gflops * BATCH / embedding_seconds

    context = multiprocessing.get_context("spawn")
    with context.Pool(1, maxtasksperchild=1) as pool:
        memory = pool.apply(step_memory, ("training step",))
        literal_memory = pool.apply(step_memory, ("literal training step",))
    rows = [
        row(
            "training step, seconds",
            step_seconds,
            literal_seconds,
            literal_seconds / step_seconds,
            1.4,
        ),
        row(
            "training, GFLOP/s of the machine's",
            training_rate,
            machine_rate,
            training_rate / machine_rate,
            0.70,
        ),
        row(
            "training, GFLOP/s of a product of the model's largest shape",
            training_rate,
            product_rate,
            training_rate / product_rate,
        ),
        row(
            "embedding, GFLOP/s of the machine's",
            embedding_rate,
            machine_rate,
            embedding_rate / machine_rate,
        ),
        row(
            "embedding, participants per second against training",
            BATCH / embedding_seconds,
            BATCH / step_seconds,
            step_seconds / embedding_seconds,
            2.5,
        ),
        row(
            "GFLOP per participant, training against embedding",
            training_gflops,
            embedding_gflops,
            training_gflops / embedding_gflops,
        ),
        row(
            "peak memory of a step, MB",
            memory,
            literal_memory,
            literal_memory / memory,
            1.0,
        ),
        row(
            "time of a step in the training loop, times that of the bare step",
            math.nan,
            ratio=loop_overhead(model, packed, step_seconds),
        ),
    ]
    rows += scaling_rows()
    torch.set_num_threads(n_threads)
    return rows
