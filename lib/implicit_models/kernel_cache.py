"""Numba's disk cache of a package's kernels, kept true to their sources.

Numba looks at the file that defines a function, not at the files whose functions it calls: after an edit of one kernel
module the others would run machine code of the old one. Any change of any of them drops the whole cache.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

MARK = "numba_kernels.sha256"


def drop_stale(folder: Path) -> bool:
    """Delete the cache if the kernel modules in `folder` are not those that filled it; call it before one of them
    loads.

    Returns: whether anything was deleted. Where the folder cannot be written numba keeps its cache elsewhere.
    """
    sources = sorted(path for path in folder.glob("*.py") if b"numba" in path.read_bytes())
    wanted = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources)).hexdigest()
    cache = folder / "__pycache__"
    try:
        if (cache / MARK).read_text() == wanted:
            return False
    except OSError:
        pass  # no mark yet
    try:
        cache.mkdir(exist_ok=True)
        old = [*cache.glob("*.nbi"), *cache.glob("*.nbc")]  # the index first: code without it is never loaded
        for path in old:
            path.unlink(missing_ok=True)
        part = cache / f"{MARK}.{os.getpid()}"
        part.write_text(wanted)
        os.replace(part, cache / MARK)
    except OSError:
        return False
    return bool(old)
