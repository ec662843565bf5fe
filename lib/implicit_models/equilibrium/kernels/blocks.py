"""Feature-major blocks of samples: the layout in which compiled sweeps run.

A block holds `width` vector registers of samples for each state, one state after the other, so that a sweep reads
whole registers and stays in the first-level cache; the matrix is packed in panels of `ROWS` rows in the order of use.
"""

from __future__ import annotations

from implicit_models.kernels import kernel

from .simd import ROWS, address, advance, multiply_rows

_CACHE_BYTES = 40960  # what the states of a block may take of the first-level cache


@kernel
def aligned(array):
    """Pointer to the first cache line inside a flat array, which must have 64 elements to spare."""
    return advance(address(array), (-array.ctypes.data % 64) // array.itemsize)


@kernel
def clear(pointer, count):
    for k in range(count):
        pointer[k] = 0


@kernel
def block_width(n, n_samples, itemsize, lanes):
    """Registers per block: at most 4, few enough for the cache and for lanes to be used several times each."""
    return max(1, min(4, max(2, _CACHE_BYTES // (n * lanes * itemsize)), n_samples // (3 * lanes)))


@kernel
def pack(A, transpose, reverse, picard, n_pad, panel, corner):
    """Pack A (or its transpose) by panels of ROWS rows, in the order of the sweep.

    Entries that a sweep treats apart are zero in `panel` and kept in `corner` (ROWS x ROWS per panel): the diagonal
    and what lies below it inside the panel. Rows marked in `picard` keep their diagonal in the panel.
    Returns the largest row sum of what a sweep takes at its old value.
    """
    n = A.shape[0]
    clear(panel, n_pad * n_pad)
    clear(corner, n_pad * ROWS)
    largest = 0.0
    for row in range(n):
        i = n - 1 - row if reverse else row
        base, r = row // ROWS * ROWS, row % ROWS
        total = 0.0
        for column in range(n):
            j = n - 1 - column if reverse else column
            value = A[j, i] if transpose else A[i, j]
            if base <= column < row or (column == row and not picard[row]):
                corner[row * ROWS + column - base] = value
            else:
                panel[base * n_pad + column * ROWS + r] = value
                if column >= row:
                    total += abs(value)
        largest = max(largest, total)
    return largest


@kernel
def all_finite(A):
    """Whether no entry of a matrix is NaN or infinite."""
    finite = True
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            finite &= A[i, j] - A[i, j] == 0
    return finite


@kernel(forceinline=True)
def multiply_panel(panel, row, n_pad, x, bias, out, width):
    """out = bias[row : row + ROWS] + panel @ x for the panel that starts at `row`."""
    start = row * n_pad
    if width == 4:
        multiply_rows(panel, start, x, n_pad, row, bias, row, out, 4)
    elif width == 3:
        multiply_rows(panel, start, x, n_pad, row, bias, row, out, 3)
    elif width == 2:
        multiply_rows(panel, start, x, n_pad, row, bias, row, out, 2)
    else:
        multiply_rows(panel, start, x, n_pad, row, bias, row, out, 1)
