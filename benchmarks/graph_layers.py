"""Dense batched graph layers against torch-geometric's, at R = 400 and batch 32: time of a step and peak memory.

Each implementation runs in a process of its own, so that its peak memory is its own.
"""

import multiprocessing
import time

import torch

from benchmarks import peak_memory, row

N_REGIONS = 400
BATCH = 32
WIDTH = 512
KEEP = 0.1  # share of the connections that are edges
REPEATS = 3


def dense_step(kind, fc):
    """Our layer (GIN or GCN), and a function that computes its loss."""
    from nerve.methods.graph_layers import GraphConvolution, GraphIsomorphism, strongest_edges

    n_regions = fc.shape[-1]
    if kind == "GIN":
        layer = GraphIsomorphism(n_regions, WIDTH, WIDTH)
    else:
        layer = GraphConvolution(n_regions, WIDTH)

    def loss():
        return layer(fc, strongest_edges(fc, KEEP)).square().mean()

    return layer, loss


def sparse_step(kind, fc):
    """The layer of torch-geometric, and a function that computes its loss."""
    from torch_geometric.nn import GCNConv, GINConv

    from nerve.methods.graph_layers import strongest_edges

    n_regions = fc.shape[-1]
    if kind == "GIN":
        mlp = torch.nn.Sequential(
            torch.nn.Linear(n_regions, WIDTH),
            torch.nn.BatchNorm1d(WIDTH),
            torch.nn.PReLU(),
            torch.nn.Linear(WIDTH, WIDTH),
        )
        layer = GINConv(mlp)
    else:
        layer = GCNConv(n_regions, WIDTH)

    def loss():
        participant, source, target = strongest_edges(fc, KEEP).nonzero(as_tuple=True)
        # One large graph, in which the regions of all participants are numbered one after another.
        first_region = participant * n_regions
        edges = torch.stack([source + first_region, target + first_region])
        return layer(fc.reshape(-1, n_regions), edges).square().mean()

    return layer, loss


def measure(kind, is_dense, n_regions, batch, answer):
    """Put CPU seconds of a step and peak GiB of this process into a queue."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    series = torch.randn(batch, 200, n_regions, generator=generator)
    series = (series - series.mean(1, keepdim=True)) / series.std(1, keepdim=True)
    fc = series.transpose(1, 2) @ series / 200  # (participants, R, R)
    make_step = dense_step if is_dense else sparse_step
    layer, loss = make_step(kind, fc)
    loss().backward()
    began = time.process_time()
    for _ in range(REPEATS):
        layer.zero_grad()
        loss().backward()
    seconds = (time.process_time() - began) / REPEATS
    answer.put((seconds, peak_memory()))


def measure_in_new_process(kind, is_dense):
    """CPU seconds of a step, and peak GiB."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=measure, args=(kind, is_dense, N_REGIONS, BATCH, answer))
    process.start()
    costs = answer.get()
    process.join()
    return costs


def run() -> list[dict]:
    """Two rows per layer: value (ours), reference (torch-geometric's), ratio and target."""
    rows = []
    for kind in ("GIN", "GCN"):
        seconds, memory = measure_in_new_process(kind, is_dense=True)
        their_seconds, their_memory = measure_in_new_process(kind, is_dense=False)
        name = f"{kind} at R = {N_REGIONS}, batch {BATCH}: dense against torch-geometric"
        rows += [
            row(
                f"{name} (CPU seconds per step)",
                seconds,
                their_seconds,
                their_seconds / seconds,
                "≥ 1",
            ),
            row(f"{name} (peak GiB)", memory, their_memory, their_memory / memory, "≥ 1"),
        ]
    return rows
