"""One pass over a state: its largest change beside its size, smooth maps in place, and norms of a matrix."""

from __future__ import annotations

from implicit_models.kernels import kernel

from .simd import absolute, address, lanes, load, maximum, spread, store
from .vector_math import vector_sigmoid, vector_tanh


@kernel(borrows=True, fastmath={"contract", "reassoc"})
def norms(A, columns):
    """Largest row sum of |A|; `columns`, of A's type, becomes the sums of the columns. An entry that is not finite
    shows."""
    n, largest = A.shape[0], A[0, 0] * 0
    columns[:] = 0
    for i in range(n):
        row = largest * 0
        for j in range(n):
            size = abs(A[i, j])
            row += size
            columns[j] += size
        largest = row if not row <= largest else largest
    return largest


@kernel
def smooth_in_place(z, tanh, scratch):
    """z = tanh(z), or the logistic function of z, for a flat z; scratch holds one register. Returns nothing of use."""
    pointer, spare = address(z), address(scratch)
    width, count = lanes(pointer), z.size
    whole = count // width * width
    for k in range(0, whole + width, width):
        last = k == whole
        if last:
            for r in range(count - whole):
                scratch[r] = z[whole + r]
        v = load(spare if last else pointer, 0 if last else k)
        store(
            spare if last else pointer,
            0 if last else k,
            vector_tanh(pointer, v) if tanh else vector_sigmoid(pointer, v),
        )
    for r in range(count - whole):
        z[whole + r] = scratch[r]
    return z.size + scratch.size  # pointers do not keep arrays alive: these are used to the end


@kernel
def worst_change(new, old, floor, weight, scratch, ratio):
    """Largest of the rows' ratio_i = max|new - old| / max(floor_i, weight max|new|), 0 for 0 / 0; an empty floor is 0.

    Args:
        new, old: (N, n) contiguous. What is not finite may be passed over: whoever calls looks for it.
        scratch: two registers.
        ratio: (N,) is filled.
    """
    n, a, b, spare = new.shape[1], address(new), address(old), address(scratch)
    width, zero = lanes(a), weight * 0
    whole, worst = n // width * width, zero
    for i in range(new.shape[0]):
        at, change, size = i * n, zero, zero
        if whole:
            most = largest = spread(a, zero)
            for k in range(at, at + whole, width):
                value = load(a, k)
                most = maximum(absolute(value - load(b, k)), most)
                largest = maximum(absolute(value), largest)
            store(spare, 0, most)
            store(spare, width, largest)
            for k in range(width):
                change = spare[k] if spare[k] > change else change
                size = spare[width + k] if spare[width + k] > size else size
        for k in range(at + whole, at + n):
            change, size = max(change, abs(a[k] - b[k])), max(size, abs(a[k]))
        scale = weight * size
        if floor.size and floor[i] > scale:
            scale = floor[i]
        ratio[i] = change / scale if change > 0 else zero
        worst = ratio[i] if ratio[i] > worst else worst
    return worst if new.size + old.size + scratch.size else zero  # arrays are used to the end: pointers keep none
