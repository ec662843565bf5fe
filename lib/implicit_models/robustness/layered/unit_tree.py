"""How a set was split by the signs of units, and the multipliers that prove each part that was not split further."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int8, Int64


@dataclass(eq=False)
class UnitTree:
    """How parts were split, and the multipliers that prove each that was not.

    Attributes:
        unit: (M,) state at whose kink a node is split, -1 for a leaf. The first nodes are one for each polyhedron.
        children: (M, 2) numbers of the nodes where it is at most and at least 0.
        weights: (M, k) of the rows of its polyhedron, whose average is proved on a leaf.
        multipliers: number of a leaf -> (n,), those of `check`; None where they were too many to be kept.
    """

    unit: Int64[np.ndarray, " M"]
    children: Int64[np.ndarray, "M 2"]
    weights: Float[np.ndarray, "M k"]
    multipliers: dict[int, Float[np.ndarray, " n"]] | None = field(default_factory=dict)

    @classmethod
    def of(cls, polyhedra: int, k: int) -> UnitTree:
        """One leaf for each polyhedron of up to k rows."""
        return cls(np.full(polyhedra, -1), np.full((polyhedra, 2), -1), np.zeros((polyhedra, k)))

    def split(self, nodes: Int64[np.ndarray, " k"], unit: Int64[np.ndarray, " k"]) -> Int64[np.ndarray, "k 2"]:
        """Split nodes; the numbers of their halves."""
        first, k = len(self.unit), len(nodes)
        self.unit[nodes] = unit
        self.children[nodes] = first + np.arange(2 * k).reshape(k, 2)
        self.unit = np.concatenate([self.unit, np.full(2 * k, -1)])
        self.children = np.concatenate([self.children, np.full((2 * k, 2), -1)])
        self.weights = np.concatenate([self.weights, np.zeros((2 * k, self.weights.shape[1]))])
        return self.children[nodes]

    def leaves(self, polyhedra: int, n: int) -> tuple[Int64[np.ndarray, " L"], np.ndarray, Int8[np.ndarray, "L n"]]:
        """Numbers of all leaves, their polyhedra, and the signs of all states on them, 0 for any.

        Raises:
            ValueError: for what is no tree, or splits a state that there is not.
        """
        nodes, whose = np.arange(polyhedra), np.arange(polyhedra)
        signs, seen, out = np.zeros((polyhedra, n), np.int8), polyhedra, []
        if len(self.unit) < polyhedra or np.any(self.unit >= n):
            raise ValueError("the nodes are not those of the property and the model")
        while nodes.size:
            whole = self.unit[nodes] < 0
            out.append((nodes[whole], whose[whole], signs[whole]))
            nodes, whose, signs = nodes[~whole], whose[~whole], signs[~whole]
            below, above = signs.copy(), signs
            unit = self.unit[nodes]
            if signs[np.arange(len(nodes)), unit].any():
                raise ValueError("a unit is split twice")
            below[np.arange(len(nodes)), unit] = -1
            above[np.arange(len(nodes)), unit] = 1
            nodes = self.children[nodes].T.reshape(-1)
            whose, signs = np.concatenate([whose, whose]), np.concatenate([below, above])
            seen += len(nodes)
            if seen > len(self.unit) or np.any(nodes < polyhedra):
                raise ValueError("the nodes are not a tree")
        return tuple(np.concatenate([part[k] for part in out]) for k in range(3))  # type: ignore[return-value]
