"""A sparse network that skips its zeros: its convolutions compiled, 16 samples side by side.

Convolutions over two axes, of one group, padded by zeros, take the kernels of `pruning.sparse_convolution`; the batch
norm, the sum and the ReLU behind one are part of it where nothing else reads what lies between. Componentwise steps and
sums stay in that layout; shortcuts that move entries do, too. Whatever else a network has is done by torch on values
brought back to its layout, so that every network that is read can be compiled; it pays where most convolutions are
sparse.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.sim.pruning.sparse_convolution import LANES, KernelRows, convolve_lines, kernel_rows
from implicit_models.tracing.nodes import Activation, Convolution, Graph, Node, Normalisation, Sum, Take
from implicit_models.tracing.reading import read

STILL = ("relu", "leaky_relu", "tanh", "relu6")  # maps of zero to zero, which margins need


@dataclass(frozen=True, eq=False)
class _Fused:
    """A convolution with what is behind it. steps: names of them all, the last one at the end; added: the step that is
    added, "" for none."""

    node: Convolution
    rows: KernelRows
    steps: tuple[str, ...]
    added: str
    relu: bool


@dataclass
class _Values:
    """Values of 16 samples: plain ones (16, *shape) and lines (C, H + 2 m, (W + 2 m) 16), by name."""

    margin: int
    plain: dict[str, Tensor] = field(default_factory=dict)
    lines: dict[str, Tensor] = field(default_factory=dict)

    def as_plain(self, name: str) -> Tensor:
        if name not in self.plain:
            own, m = self.lines[name], self.margin
            inside = own.unflatten(2, (-1, LANES))[:, m : own.shape[1] - m, m : own.shape[2] // LANES - m]
            self.plain[name] = inside.permute(3, 0, 1, 2).clone(memory_format=torch.contiguous_format)
        return self.plain[name]

    def as_lines(self, name: str) -> Tensor:
        if name not in self.lines:
            own, m = self.plain[name], self.margin
            out = own.new_zeros(own.shape[1], own.shape[2] + 2 * m, own.shape[3] + 2 * m, LANES)
            out[:, m : m + own.shape[2], m : m + own.shape[3]] = own.permute(1, 2, 3, 0)
            self.lines[name] = out.flatten(2)
        return self.lines[name]


class CompiledNetwork(nn.Module):
    """Outputs of a network in evaluation mode, without gradients, in float32 on the CPU. It holds the weights as they
    were when it was made.

    Args:
        network: such as a `SparseNetwork`; what `read` takes.
        input_shape: of a sample.

    Raises:
        TypeError, ValueError: as `read`; for a network that is not of float32.
    """

    def __init__(self, network: nn.Module, input_shape: tuple[int, ...]):
        super().__init__()
        self.graph = read(getattr(network, "network", network), input_shape)
        if self.graph.dtype != torch.float32:
            raise ValueError(f"compiled convolutions are of float32, the network is of {self.graph.dtype}")
        convolutions = [n for n in self.graph.nodes if _compiles(n)]
        self.margin = max([max(_padding(n)) for n in convolutions], default=0)
        self.fused: dict[str, _Fused] = {}  # by the step at which they are run, the last one
        runs_at: dict[str, str] = {}
        for node in reversed(convolutions):  # of two that meet in a sum the later one takes it
            found = _fused(self.graph, node, runs_at, self.margin)
            self.fused[found.steps[-1]] = found
            runs_at |= dict.fromkeys(found.steps, found.steps[-1])
        self.inside = {name for name, end in runs_at.items() if name != end}
        place = {step.name: i for i, step in enumerate(self.graph.nodes)}
        self.last: dict[str, str] = {}  # the step after whose run nothing reads a value
        for step in self.graph.nodes:
            at = runs_at.get(step.name, step.name)
            for name in step.inputs:
                self.last[name] = max(self.last.get(name, at), at, key=place.__getitem__)
        self.pools: dict[tuple[int, ...], list[Tensor]] = {}

    def __repr__(self) -> str:
        nonzero = sum(int((f.rows.weight != 0).sum()) for f in self.fused.values())
        return f"CompiledNetwork({len(self.fused)} convolutions, {nonzero} weights that are not zero)"

    @torch.no_grad()
    def forward(self, u: Float[Tensor, "N ..."]) -> Tensor:
        """Outputs, 16 samples at a time.

        Raises:
            ValueError: for samples of another shape or type than the network's.
        """
        shape = self.graph.input.shape
        if tuple(u.shape[1:]) != shape or u.dtype != torch.float32:
            wanted = f"(N, {', '.join(map(str, shape))}) of float32"
            raise ValueError(f"samples must be {wanted}, got {tuple(u.shape)} of {u.dtype}")
        parts = []
        for part in u.split(LANES):
            more = LANES - len(part)
            whole = torch.cat([part, part.new_zeros(more, *shape)]) if more else part
            parts.append(self._sixteen(whole)[: len(part)])
        return torch.cat(parts) if parts else u.new_zeros(0, *self.graph[self.graph.output].shape)

    def _sixteen(self, u: Tensor) -> Tensor:
        values, owned = _Values(self.margin, {self.graph.input.name: u}), {}  # type: _Values, dict[str, Tensor]
        for step in self.graph.nodes[1:]:
            if step.name in self.inside:
                continue
            read = list(step.inputs)
            if step.name in self.fused:
                fused = self.fused[step.name]
                read = [fused.node.inputs[0], *([fused.added] if fused.added else [])]
                owned[step.name] = self._convolve(fused, values, step.shape)
                values.lines[step.name] = owned[step.name]
            elif _stays(step) and all(name in values.lines for name in step.inputs):
                values.lines[step.name] = step.run(*(values.lines[name] for name in step.inputs))
            elif isinstance(step, Take) and _is_image(step) and step.inputs[0] in values.lines:
                values.lines[step.name] = self._moved(step, values)
            else:
                values.plain[step.name] = step.run(*(values.as_plain(name) for name in step.inputs))
            for name in read:
                if self.last[name] == step.name and name != self.graph.output:
                    values.plain.pop(name, None)
                    values.lines.pop(name, None)
                    if name in owned:
                        self.pools[tuple(owned[name].shape)].append(owned.pop(name))
        out = values.as_plain(self.graph.output)
        for own in owned.values():
            self.pools[tuple(own.shape)].append(own)
        return out

    def _convolve(self, fused: _Fused, values: _Values, shape: tuple[int, ...]) -> Tensor:
        m = self.margin
        size = (shape[0], shape[1] + 2 * m, (shape[2] + 2 * m) * LANES)
        pool = self.pools.setdefault(size, [])
        out = pool.pop() if pool else torch.zeros(size)  # margins stay zero
        x = values.as_lines(fused.node.inputs[0]).reshape(-1).numpy()
        added = values.as_lines(fused.added).numpy() if fused.added else out.numpy()
        convolve_lines(x, fused.rows, bool(fused.added), added, fused.relu, out.numpy(), (shape[1], shape[2]), m)
        return out

    def _moved(self, step: Take, values: _Values) -> Tensor:
        """Entries by their numbers, of all samples at once."""
        m, source = self.margin, self.graph[step.inputs[0]].shape
        own = values.lines[step.inputs[0]].unflatten(2, (-1, LANES))
        inside = own[:, m : m + source[1], m : m + source[2]].reshape(-1, LANES)
        entries = torch.from_numpy(step.entries.reshape(-1))
        found = inside[entries.clamp(min=0)]
        found[entries < 0] = step.fill
        out = own.new_zeros(step.shape[0], step.shape[1] + 2 * m, step.shape[2] + 2 * m, LANES)
        out[:, m : m + step.shape[1], m : m + step.shape[2]] = found.reshape(*step.shape, LANES)
        return out.flatten(2)


def _compiles(step: Node) -> TypeGuard[Convolution]:
    return (
        isinstance(step, Convolution)
        and len(step.kernel) == 2
        and step.groups == 1
        and step.padding_mode == "zeros"
        and all(a == b for a, b in step.sides)
    )


def _padding(step: Convolution) -> tuple[int, int]:
    (a, _), (b, _) = step.sides
    return a, b


def _is_image(step: Node) -> bool:
    return len(step.shape) == 3


def _stays(step: Node) -> bool:
    """Whether a step works on lines as it does on plain values."""
    if not _is_image(step):
        return False
    if isinstance(step, Activation):
        return step.map in STILL and not isinstance(step.slope, Tensor)
    return isinstance(step, Sum)


def _fused(graph: Graph, node: Convolution, taken: Collection[str], margin: int) -> _Fused:
    """A convolution with the steps behind it that are not taken."""
    weight = node.weight.detach().double().numpy()
    bias = np.zeros(len(weight)) if node.bias is None else node.bias.detach().double().numpy()
    readers: dict[str, list[Node]] = {}
    for step in graph.nodes:
        for name in step.inputs:
            readers.setdefault(name, []).append(step)
    steps, added, relu = [node.name], "", False
    while len(readers.get(steps[-1], [])) == 1 and steps[-1] != graph.output and not relu:
        (step,) = readers[steps[-1]]
        if step.name in taken:
            break
        if isinstance(step, Normalisation) and not added:
            factor, shift = step.affine()
            weight, bias = weight * factor[:, None, None, None], bias * factor + shift
        elif isinstance(step, Sum) and not added and step.coefficients == (1.0, 1.0) and len(set(step.inputs)) == 2:
            (added,) = (name for name in step.inputs if name != steps[-1])
        elif isinstance(step, Activation) and step.map == "relu":
            relu = True
        else:
            break
        steps.append(step.name)
    shape = graph[node.inputs[0]].shape[1:]
    options = {"stride": node.stride, "padding": _padding(node), "dilation": node.dilation}
    rows = kernel_rows(weight, bias, shape, margin, **options)  # type: ignore[arg-type]
    return _Fused(node, rows, tuple(steps), added, relu)


def compiled(network: nn.Module, input_shape: tuple[int, ...]) -> CompiledNetwork:
    """A network that skips the zeros of its convolutions; see `CompiledNetwork`."""
    return CompiledNetwork(network, input_shape).eval()
