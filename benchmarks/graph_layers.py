"""Dense batched graph layers against torch-geometric's, at R = 400 and batch 32: time of a step and peak memory.

Each implementation runs in a process of its own, so that its peak memory is its own.
"""

import multiprocessing
import time

import torch

from benchmarks import peak_memory

N_REGIONS, BATCH = 400, 32
WIDTH, KEEP, REPEATS = 512, 0.1, 3


def dense_step(kind, fc):
    from nerve.methods.graph_layers import GraphConvolution, GraphIsomorphism, strongest_edges

    n = fc.shape[-1]
    layer = GraphIsomorphism(n, WIDTH, WIDTH) if kind == "GIN" else GraphConvolution(n, WIDTH)
    return layer, lambda: layer(fc, strongest_edges(fc, KEEP)).square().mean()


def sparse_step(kind, fc):
    from torch_geometric.nn import GCNConv, GINConv

    from nerve.methods.graph_layers import strongest_edges

    n = fc.shape[-1]
    if kind == "GIN":
        mlp = torch.nn.Sequential(
            torch.nn.Linear(n, WIDTH),
            torch.nn.BatchNorm1d(WIDTH),
            torch.nn.PReLU(),
            torch.nn.Linear(WIDTH, WIDTH),
        )
        layer = GINConv(mlp)
    else:
        layer = GCNConv(n, WIDTH)

    def loss():
        person, source, target = strongest_edges(fc, KEEP).nonzero(as_tuple=True)
        edges = torch.stack([source + person * n, target + person * n])
        return layer(fc.reshape(-1, n), edges).square().mean()

    return layer, loss


def measure(kind, dense, n_regions, batch, answer):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    series = torch.randn(batch, 200, n_regions, generator=generator)
    series = (series - series.mean(1, keepdim=True)) / series.std(1, keepdim=True)
    fc = series.transpose(1, 2) @ series / 200
    layer, loss = (dense_step if dense else sparse_step)(kind, fc)
    loss().backward()
    before = time.process_time()
    for _ in range(REPEATS):
        layer.zero_grad()
        loss().backward()
    seconds = (time.process_time() - before) / REPEATS
    answer.put((seconds, peak_memory()))


def run() -> list[dict]:
    """Rows with name, value (ours), reference (torch-geometric), ratio and target."""
    context = multiprocessing.get_context("spawn")
    rows = []
    for kind in ("GIN", "GCN"):
        figures = []
        for dense in (True, False):
            answer = context.Queue()
            process = context.Process(target=measure, args=(kind, dense, N_REGIONS, BATCH, answer))
            process.start()
            figures.append(answer.get())
            process.join()
        for i, what in enumerate(("CPU seconds per step", "peak GiB")):
            ours, theirs = figures[0][i], figures[1][i]
            name = (
                f"{kind} at R = {N_REGIONS}, batch {BATCH}: dense against torch-geometric ({what})"
            )
            rows.append(
                {
                    "name": name,
                    "value": ours,
                    "reference": theirs,
                    "ratio": theirs / ours,
                    "target": "≥ 1",
                }
            )
    return rows
