"""Numba's disk cache, kept true to the sources of the kernels.

Numba recompiles a function when the file that defines it changes, not when a file changes whose functions it calls.
After an update of one kernel module the others would then run machine code of the old one. So a digest over all kernel
modules lies beside the cache, and the cache is dropped when they differ.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

KERNEL_MODULES = ("blocks", "gauss_seidel", "newton", "simd", "sweeps", "vector_math")


def drop_stale(folder: Path | None = None) -> bool:
    """Delete the compiled kernels of other sources; call it before a kernel module compiles or loads anything.

    Args:
        folder: where the kernel modules lie; this package's by default.

    Returns:
        Whether anything was dropped. A folder that cannot be written (numba keeps its cache elsewhere then) is left
        alone.
    """
    folder = Path(__file__).parent if folder is None else folder
    digest = hashlib.sha256()
    for name in KERNEL_MODULES:
        digest.update((folder / f"{name}.py").read_bytes())
    cache, wanted = folder / "__pycache__", digest.hexdigest()
    mark = cache / "kernels.sha256"
    try:
        if mark.read_text() == wanted:
            return False
    except OSError:
        pass
    try:
        cache.mkdir(exist_ok=True)
        # The index files first: without its index a machine-code file is never loaded.
        stale = [*cache.glob("*.nbi"), *cache.glob("*.nbc")]
        for path in stale:
            path.unlink(missing_ok=True)
        part = mark.with_suffix(f".{os.getpid()}")
        part.write_text(wanted)
        os.replace(part, mark)
    except OSError:
        return False
    return bool(stale)
