"""Gram matrices of the receptive fields of many positions, from the products of neighbouring cells.

A cell is one position of one block: its channels are consecutive rows of F (columns of the row problems, one sample
after the other). Two windows that overlap share cells, so that the product of two cells is computed once for all
windows in which both lie: for 3 x 3 windows 25 neighbours instead of 81 pairs a window. A window's Gram matrix is then
put together from blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from implicit_models.kernels import kernel
from implicit_models.sim.solvers.cholesky import OPTIONS


@dataclass(frozen=True)
class PairPlan:
    """Which products windows need, and where their blocks lie.

    A run is a cell and consecutive later cells: rows `first` .. of F times rows `begin` .. `end`, stored from `offset`
        on, `end - begin` wide.
    block, column (W, k, k): run and first column of the product of two cells of a window, for cell i not after cell j;
    -1 elsewhere.
    """

    cell: Int[np.ndarray, " R"]
    begin: Int[np.ndarray, " R"]
    end: Int[np.ndarray, " R"]
    offset: Int[np.ndarray, " R"]
    total: int
    block: Int[np.ndarray, "W k k"]
    column: Int[np.ndarray, "W k k"]


def plan_pairs(cells: Int[np.ndarray, "W k"], start: Int[np.ndarray, " c_1"]) -> PairPlan:
    """The products that the windows `cells` (ascending in each row, -1 behind) need; start: first row of each cell, and
    the end."""
    W, k = cells.shape
    i, j = np.triu_indices(k)
    p, q = cells[:, i], cells[:, j]
    there = (p >= 0) & (q >= 0)
    n = len(start) - 1
    code = np.where(there, p.astype(np.int64) * n + q, -1)
    wanted = np.unique(code[there])
    block, column = np.full((W, k, k), -1, np.int64), np.zeros((W, k, k), np.int64)
    if not len(wanted):
        none = np.zeros(0, np.int64)
        return PairPlan(none, none, none, none, 0, block, column)
    P, Q = wanted // n, wanted % n
    # a run ends where the first cell changes or the second one is not the next
    breaks = np.r_[True, (P[1:] != P[:-1]) | (Q[1:] != Q[:-1] + 1)]
    run = np.cumsum(breaks) - 1
    heads = np.flatnonzero(breaks)
    tails = np.r_[heads[1:], len(wanted)] - 1
    begin, end = start[Q[heads]], start[Q[tails] + 1]
    cell = P[heads]
    sizes = (start[cell + 1] - start[cell]) * (end - begin)
    offset = np.concatenate([[0], np.cumsum(sizes)])
    place = np.where(there, np.searchsorted(wanted, code), 0)
    block[:, i, j] = np.where(there, run[place], -1)
    column[:, i, j] = np.where(there, start[Q[place]] - begin[run[place]], 0)
    return PairPlan(cell, begin, end, offset[:-1], int(offset[-1]), block, column)


@kernel(**OPTIONS)
def pair_products(F, start, cell, begin, end, offset, out):
    """out[offset:] = F_cell F_run' for every run; F (rows, m)."""
    for r in range(len(cell)):
        a, b = start[cell[r]], start[cell[r] + 1]
        block = np.dot(F[a:b], F[begin[r] : end[r]].T)
        h, w = block.shape
        at = offset[r]
        for i in range(h):
            for j in range(w):
                out[at + i * w + j] = block[i, j]


@kernel(**OPTIONS)
def window_gram(products, offset, begin, end, start, cells, block, column, G):
    """G (d, d) of one window, symmetric; returns d."""
    k = cells.shape[0]
    first = np.empty(k + 1, np.int64)
    first[0] = 0
    n = 0
    for i in range(k):
        if cells[i] < 0:
            break
        first[i + 1] = first[i] + start[cells[i] + 1] - start[cells[i]]
        n += 1
    for i in range(n):
        h = first[i + 1] - first[i]
        for j in range(i, n):
            r = block[i, j]
            width = end[r] - begin[r]
            at = offset[r] + column[i, j]
            w = first[j + 1] - first[j]
            for s in range(h):
                for t in range(w):
                    G[first[i] + s, first[j] + t] = products[at + s * width + t]
    d = first[n]
    for i in range(d):
        for j in range(i):
            G[i, j] = G[j, i]
    return d


@kernel(**OPTIONS)
def window_targets(F, start, cells, Z, C):
    """C (r, d) = Z M' for the window's columns M; Z (r, m). Consecutive cells go in one product."""
    k = cells.shape[0]
    at, i = 0, 0
    while i < k and cells[i] >= 0:
        j = i
        while j + 1 < k and cells[j + 1] == cells[j] + 1:
            j += 1
        a, b = start[cells[i]], start[cells[j] + 1]
        C[:, at : at + b - a] = np.dot(Z, F[a:b].T)
        at += b - a
        i = j + 1


def window_columns(cells: Int[np.ndarray, " k"], start: Int[np.ndarray, " c_1"]) -> Int[np.ndarray, " d"]:
    """Rows of F that a window reads, in the order of its Gram matrix."""
    there = cells[cells >= 0]
    return np.concatenate([np.arange(start[c], start[c + 1]) for c in there]) if len(there) else np.zeros(0, np.int64)


def gram_of_window(
    F: Float[np.ndarray, "R m"], start: Int[np.ndarray, " c_1"], cells: Int[np.ndarray, " k"]
) -> Float[np.ndarray, "d d"]:
    """The same by one product: what the blocks are checked against."""
    M = F[window_columns(cells, start)]
    return M @ M.T
