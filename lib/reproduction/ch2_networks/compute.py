"""What chapter 2 of the thesis says of networks as implicit models, checked on random models and networks: errors and
counts.

Each function draws `count` cases with its seed and returns what a reader can compare with zero, or with a printed
value.

Source: Tsai thesis (2024), sections 2.2, 2.4 and 2.5.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from implicit_models.compose.attention import BoundedAttention
from implicit_models.compose.interconnect import cascade, from_network, multiply
from implicit_models.layers import ImplicitModel
from implicit_models.perron import perron_frobenius

PRINTED_IMAGE = ((12, 20, 30, 0), (8, 12, 2, 0), (34, 70, 37, 4), (112, 100, 25, 12))
PRINTED_MAXIMA = ((20, 30), (112, 37))
TIGHT = {"tol": 1e-13, "max_iter": 20_000}


def _weights(network: nn.Module, generator: torch.Generator) -> nn.Module:
    """Parameters and running statistics at random, evaluation mode, float64."""
    with torch.no_grad():
        for name, t in (*network.named_parameters(), *network.named_buffers()):
            if t.is_floating_point():
                t.normal_(generator=generator).mul_(0.5)
                if name.endswith("running_var"):
                    t.abs_().add_(0.5)
    return network.double().eval()


def _model(p: int, q: int, n: int, rng: np.random.Generator, activation: str = "relu") -> ImplicitModel:
    A = rng.normal(size=(n, n))
    A *= 0.9 / np.abs(A).sum(axis=1).max()
    return ImplicitModel.from_matrices(
        A, rng.normal(size=(n, p)), rng.normal(size=(q, n)), rng.normal(size=(q, p)), activation, **TIGHT
    )


def _largest(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max().clamp_min(1))


def cascade_facts(count: int, seed: int) -> dict[str, float]:
    """Largest difference of a cascade from g(f(u)), and of its matrices from the printed blocks."""
    rng, output, matrices = np.random.default_rng(seed), 0.0, 0.0
    for _ in range(count):
        p, q, r, n, k = rng.integers(1, 6, 5)
        f, g = _model(p, q, n, rng), _model(q, r, k, rng)
        whole = cascade(f, g, **TIGHT)
        u = torch.from_numpy(rng.normal(size=(8, p)))
        with torch.no_grad():
            output = max(output, _largest(whole(u), g(f(u))))
        (A1, B1, C1, D1), (A2, B2, C2, D2) = ([M.detach().numpy() for M in (m.A, m.B, m.C, m.D)] for m in (f, g))
        printed = (
            np.block([[A2, B2 @ C1], [np.zeros((n, k)), A1]]),
            np.vstack([B2 @ D1, B1]),
            np.hstack([C2, D2 @ C1]),
            D2 @ D1,
        )
        matrices = max(
            matrices,
            *(
                np.abs(M.detach().numpy() - P).max()
                for M, P in zip((whole.A, whole.B, whole.C, whole.D), printed, strict=True)
            ),
        )
    return {"output": output, "matrices": matrices}


def product_facts(count: int, seed: int) -> dict[str, float]:
    """The product of tanh and c sigmoid: largest ratio of its changes to gamma = max{c_2 gamma_1, c_1 gamma_2} in l1,
    over drawn pairs."""
    rng, largest, error = np.random.default_rng(seed), 0.0, 0.0
    for _ in range(count):
        c = float(rng.uniform(0.2, 5))
        select = np.eye(2)
        f = ImplicitModel.from_matrices(np.zeros((1, 1)), select[:1], np.ones((1, 1)), activation="tanh")
        g = ImplicitModel.from_matrices(np.zeros((1, 1)), select[1:], c * np.ones((1, 1)), activation="sigmoid")
        gamma = max(c * 1.0, 1.0 * c / 4)
        whole = multiply(f, g, **TIGHT)
        u = rng.normal(size=(400, 2)) * 3
        u[:200, 0], u[:200, 1] = (
            rng.normal(size=200) * 0.01,
            rng.uniform(5, 9, 200),
        )  # where the constant is nearly reached
        v = u + rng.normal(size=u.shape) * 10.0 ** rng.uniform(-4, 0, (400, 1))
        with torch.no_grad():
            y, z = (whole(torch.from_numpy(w))[:, 0].numpy() for w in (u, v))
        error = max(error, float(np.abs(y - np.tanh(u[:, 0]) * c / (1 + np.exp(-u[:, 1]))).max()))
        largest = max(largest, float((np.abs(y - z) / (gamma * np.abs(u - v).sum(axis=1))).max()))
    return {"ratio": largest, "error": error}


def bias_facts(count: int, seed: int) -> dict[str, float]:
    """A model with biases against one whose input ends in a constant 1: columns of B more, and the largest
    difference."""
    rng, error, columns = np.random.default_rng(seed), 0.0, []
    for _ in range(count):
        p, q, n = rng.integers(1, 6, 3)
        plain = _model(p, q, n, rng)
        b, d = rng.normal(size=n), rng.normal(size=q)
        A, B, C, D = (M.detach().numpy() for M in (plain.A, plain.B, plain.C, plain.D))
        biased = ImplicitModel.from_matrices(A, B, C, D, b=b, d=d, **TIGHT)
        wider = ImplicitModel.from_matrices(A, np.hstack([B, b[:, None]]), C, np.hstack([D, d[:, None]]), **TIGHT)
        u = torch.from_numpy(rng.normal(size=(8, p)))
        with torch.no_grad():
            error = max(error, _largest(wider(torch.cat([u, torch.ones(8, 1, dtype=u.dtype)], 1)), biased(u)))
        columns.append(wider.in_features - p)
    return {"error": error, "columns": float(max(columns))}


def dense_facts(count: int, seed: int) -> dict[str, float]:
    """Dense networks of 1 to 4 hidden layers: entries that differ from (2.10), PF eigenvalue, differences of outputs
    and of states."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    out = {
        "matrices": 0.0,
        "pf": 0.0,
        "output": 0.0,
        "states": 0.0,
        "lower_pf": 0.0,
        "lower_entries": 0.0,
        "scaled_norm": 0.0,
        "scaled_output": 0.0,
    }
    for _ in range(count):
        widths = rng.integers(1, 7, rng.integers(3, 7)).tolist()
        layers = [nn.Linear(a, b, bias=False) for a, b in zip(widths, widths[1:])]
        network = _weights(
            nn.Sequential(*(m for layer in layers[:-1] for m in (layer, nn.ReLU())), layers[-1]), generator
        )
        model = from_network(network, widths[0], dtype=torch.float64, **TIGHT)
        W = [layer.weight.detach().numpy() for layer in layers]
        sizes = widths[1:-1][::-1]  # x = (x_L, ..., x_1)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        A, B, C = np.zeros((starts[-1],) * 2), np.zeros((starts[-1], widths[0])), np.zeros((widths[-1], starts[-1]))
        for i in range(len(sizes) - 1):  # W_{L-1}, ..., W_1 above the diagonal
            A[starts[i] : starts[i + 1], starts[i + 1] : starts[i + 2]] = W[-2 - i]
        B[starts[-2] :], C[:, : sizes[0]] = W[0], W[-1]
        found = [M.to_dense().numpy() for M in (model.A, model.B, model.C)]
        out["matrices"] = max(
            out["matrices"],
            *(float(np.abs(M - P).max()) for M, P in zip(found, (A, B, C), strict=True)),
            float(model.D is not None),
        )
        out["pf"] = max(out["pf"], perron_frobenius(np.abs(A)))
        u = torch.from_numpy(rng.normal(size=(8, widths[0])))
        with torch.no_grad():
            hidden, x = [], u
            for layer in network:
                x = layer(x)
                hidden += [x] if isinstance(layer, nn.ReLU) else []
            out["output"] = max(out["output"], _largest(model(u), network(u)))
            out["states"] = max(out["states"], _largest(model.equilibrium(u).x, torch.cat(hidden[::-1], 1)))
        turn = np.arange(starts[-1])[::-1]  # natural order, read backwards: later states last
        lower = A[np.ix_(turn, turn)]
        out["lower_entries"] = max(out["lower_entries"], float(np.abs(np.triu(lower)).max()))
        out["lower_pf"] = max(out["lower_pf"], perron_frobenius(np.abs(lower)))
        s = np.linalg.solve(np.eye(len(A)) - np.abs(A) / 0.9, np.ones(len(A)))
        scaled = ImplicitModel.from_matrices(A * s / s[:, None], B / s[:, None], C * s, **TIGHT)
        out["scaled_norm"] = max(out["scaled_norm"], float(np.abs(scaled.A.detach().numpy()).sum(axis=1).max()))
        with torch.no_grad():
            out["scaled_output"] = max(out["scaled_output"], _largest(scaled(u), network(u)))
    return out


def scaling_of_tanh(count: int, seed: int) -> float:
    """Share of tanh networks whose outputs change when states and weights are rescaled as above: homogeneity is
    needed."""
    rng, changed = np.random.default_rng(seed), 0
    for _ in range(count):
        A = np.triu(rng.normal(size=(6, 6)), 1)
        B, C = rng.normal(size=(6, 3)), rng.normal(size=(2, 6))
        s = np.linalg.solve(np.eye(6) - np.abs(A) / 0.9, np.ones(6))
        u = torch.from_numpy(rng.normal(size=(8, 3)))
        with torch.no_grad():
            plain = ImplicitModel.from_matrices(A, B, C, activation="tanh", **TIGHT)(u)
            scaled = ImplicitModel.from_matrices(A * s / s[:, None], B / s[:, None], C * s, activation="tanh", **TIGHT)(
                u
            )
        changed += _largest(scaled, plain) > 1e-6
    return changed / count


def convolution_matrix() -> np.ndarray:
    """The 4 x 9 matrix of a 2 x 2 kernel k_1 ... k_4 = 1 ... 4 on a 3 x 3 image, as converted."""
    conv = nn.Conv2d(1, 1, 2, bias=False).double()
    with torch.no_grad():
        conv.weight.copy_(torch.arange(1.0, 5.0).reshape(1, 1, 2, 2))
    return from_network(nn.Sequential(conv, nn.Flatten()), (1, 3, 3)).D.to_dense().numpy()


def printed_convolution() -> np.ndarray:
    """Section 2.5: rows k_1 k_2 0 k_3 k_4 shifted by 0, 1, 3 and 4."""
    D = np.zeros((4, 9))
    for row, shift in enumerate((0, 1, 3, 4)):
        D[row, shift : shift + 5] = (1, 2, 0, 3, 4)
    return D


def pooling_facts(count: int, seed: int) -> dict[str, Any]:
    """Figure 2.3: maxima, the selector, the implicit form, and the constant of the map in the infinity norm."""
    model = from_network(nn.Sequential(nn.MaxPool2d(2), nn.Flatten()), (1, 4, 4), dtype=torch.float64)
    image = torch.tensor(PRINTED_IMAGE, dtype=torch.float64).reshape(1, 16)
    maxima = model(image).detach().numpy().reshape(2, 2)
    rng, largest, violations = np.random.default_rng(seed), 0.0, 0
    x, y = rng.normal(size=(2, 200 * count, 16))
    y[: 100 * count] = x[: 100 * count] + 1e-3 * rng.normal(size=(100 * count, 16))
    phi = model.activation
    ratio = np.abs(phi(x) - phi(y)).max(axis=1) / np.abs(x - y).max(axis=1)
    largest, violations = float(ratio.max()), int((ratio > 1 + 1e-12).sum())
    blocks = np.eye(8)[[0, 1, 4, 5, 2, 3, 6, 7]]  # M of the example: I_2 blocks in rows 1, 2 and columns 1, 3, 2, 4
    printed = np.kron(np.eye(2), blocks)
    ours = model.B.to_dense().numpy()
    random = torch.from_numpy(rng.normal(size=(50, 16)))
    with torch.no_grad():
        error = _largest(model(random), nn.functional.max_pool2d(random.reshape(50, 1, 4, 4), 2).flatten(1))
    return {
        "maxima_error": float(np.abs(maxima - np.array(PRINTED_MAXIMA)).max()),
        "selector_error": float(np.abs(ours - printed).max()),
        "implicit_error": error,
        "lipschitz": largest,
        "violations": violations,
        "blocks_left": float((phi(np.tile(np.arange(1.0, 17.0), (1, 1))).reshape(4, 4)[:, 1:] != 0).sum()),
    }


class Residual(nn.Module):
    """y = phi_2(u + W_2 phi_1(W_1 u)) of section 2.5."""

    def __init__(self, n: int):
        super().__init__()
        self.first, self.second = nn.Linear(n, n, bias=False), nn.Linear(n, n, bias=False)

    def forward(self, u):
        return torch.relu(u + self.second(torch.relu(self.first(u))))


def residual_facts(count: int, seed: int) -> dict[str, float]:
    """Residual blocks: largest difference of outputs, and of matrices from the printed ones (states in the order x_2,
    x_1)."""
    rng, generator, output, matrices = np.random.default_rng(seed), torch.Generator().manual_seed(seed), 0.0, 0.0
    for _ in range(count):
        n = int(rng.integers(1, 7))
        block = _weights(Residual(n), generator)
        model = from_network(block, n, dtype=torch.float64)
        W1, W2 = block.first.weight.detach().numpy(), block.second.weight.detach().numpy()
        printed = (
            np.block([[np.zeros((n, n)), W2], [np.zeros((n, 2 * n))]]),
            np.vstack([np.eye(n), W1]),
            np.hstack([np.eye(n), np.zeros((n, n))]),
        )
        matrices = max(
            matrices,
            *(
                float(np.abs(M.to_dense().numpy() - P).max())
                for M, P in zip((model.A, model.B, model.C), printed, strict=True)
            ),
        )
        u = torch.from_numpy(rng.normal(size=(8, n)))
        with torch.no_grad():
            output = max(output, _largest(model(u), block(u)))
    return {"output": output, "matrices": matrices}


class _Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(3, 4, batch_first=True)

    def forward(self, u):
        return self.rnn(u)[0].flatten(1)


def architecture_errors(count: int, seed: int) -> dict[str, float]:
    """Largest difference of converted networks from the networks: convolutional, recurrent, attention, residual."""
    generator, out = torch.Generator().manual_seed(seed), {}
    conv = lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 3, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
    )
    made = {
        "convolutional": (conv, (2, 8, 8)),
        "recurrent": (_Recurrent, (6, 3)),
        "residual": (lambda: Residual(5), (5,)),
        "attention": (lambda: nn.Sequential(BoundedAttention(4, 2), nn.Flatten()), (5, 4)),
    }
    for name, (make, shape) in made.items():
        worst = 0.0
        for _ in range(max(1, count // 10)):
            network = _weights(make(), generator)
            model = from_network(network, shape, dtype=torch.float64)
            u = torch.randn(6, *shape, generator=generator, dtype=torch.float64)
            with torch.no_grad():
                worst = max(worst, _largest(model(u.flatten(1)), network(u)))
        out[name] = worst
    return out


def parameter_counts(widths: tuple[int, ...]) -> dict[str, int]:
    """Free entries of (A, B, C, D) of an implicit model with as many states as a dense network has hidden units, and
    the network's."""
    n = sum(widths[1:-1])
    implicit = n * n + n * widths[0] + widths[-1] * n + widths[-1] * widths[0]
    return {"implicit": implicit, "network": sum(a * b for a, b in zip(widths, widths[1:])), "states": n}


def real_conversion(images: int) -> dict[str, float] | None:
    """The trained ResNet-20 of CIFAR-10 as one implicit model: states, entries, largest difference of logits relative
    to the largest, and classes that differ on test images; None where its weights or the images cannot be had."""
    from data_gen.core.dataset import DatasetUnavailable
    from data_gen.images.cifar import cifar10
    from reproduction.models.resnet20 import published

    try:
        network, (u, _) = published(), cifar10(n_test=images).test[0]
    except DatasetUnavailable:
        return None
    model, v = from_network(network, (3, 32, 32)), torch.from_numpy(u)
    with torch.no_grad():
        wanted = network(v.reshape(-1, 3, 32, 32))
        found = torch.cat([model(v[at : at + 50]) for at in range(0, len(v), 50)])
    return {
        "states": float(model.n_states),
        "entries": float(model.A._nnz()),
        "error": _largest(found, wanted),
        "classes_changed": float((found.argmax(1) != wanted.argmax(1)).sum()),
        "images": float(len(v)),
    }


def structure_of(A, bins: int) -> np.ndarray:
    """(bins, bins) share of entries of a CSR matrix that are not zero, by tiles: what a drawing of A shows."""
    coo = A.tocoo()
    n = A.shape[0]
    tile = lambda index: (index.astype(np.int64) * bins) // n
    counts = np.bincount(tile(coo.row) * bins + tile(coo.col), minlength=bins * bins).reshape(bins, bins)
    return counts / (n / bins) ** 2


def network_structure(image_size: int, seed: int) -> tuple[Any, list[int], dict[str, float]]:
    """A of a 20-layer residual network with weights at random, sizes of its blocks in the order of states, and how it
    is made.

    Returns:
        the CSR matrix (later layers first); sizes of the 19 blocks; entries off the blocks of the layer before (skips),
        their number a row, and entries on or below the diagonal.
    """
    from implicit_models.compose.network import assemble
    from reproduction.models.resnet20 import ResNet20

    network = _weights(ResNet20(), torch.Generator().manual_seed(seed))
    assembly, value, *_ = assemble(network, (3, image_size, image_size))
    A = assembly.matrices(value)[0].tocsr()
    sizes = [act.n for act in assembly.maps][::-1]
    ends = np.cumsum(sizes)
    block = np.searchsorted(ends, np.arange(A.shape[0]), side="right")
    coo = A.tocoo()
    distance = block[coo.col] - block[coo.row]
    toeplitz = _toeplitz_share(A, sizes, image_size)
    return (
        A,
        sizes,
        {
            "entries": float(A.nnz),
            "skip_entries": float((distance == 2).sum()),
            "other_entries": float((distance > 2).sum()),
            "not_above": float((distance < 1).sum()),
            "largest_skips_a_row": float(np.bincount(coo.row[distance == 2], minlength=A.shape[0]).max()),
            "toeplitz": toeplitz,
            "share": A.nnz / A.shape[0] ** 2,
        },
    )


def _toeplitz_share(A, sizes: list[int], size: int) -> float:
    """Share of the entries of a convolution of the first stage that equal the entry one place further along the
    diagonal: the next pixel of the row of the image, read by the next pixel, for the same pair of channels."""
    rows, columns = slice(sum(sizes[:-2]), sum(sizes[:-1])), slice(sum(sizes[:-1]), sum(sizes))
    tile = A[rows, columns][: 4 * size * size, : 4 * size * size].toarray().reshape(4, size, size, 4, size, size)
    left, right = tile[:, :, :-1, :, :, :-1], tile[:, :, 1:, :, :, 1:]
    seen = left != 0
    return float((left[seen] == right[seen]).mean()) if seen.any() else math.nan
