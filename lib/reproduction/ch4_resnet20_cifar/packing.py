"""Images as text, for curves that a results file keeps."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def packed(values: Float[np.ndarray, " p"]) -> str:
    """Numbers in [0, 1] as text, two hexadecimal digits each: 1/255 exactly, one line of a results file."""
    return np.clip(np.round(255 * np.asarray(values, dtype=float)), 0, 255).astype(np.uint8).tobytes().hex()


def unpacked(text: str) -> Float[np.ndarray, " p"]:
    """The numbers of `packed`."""
    return np.frombuffer(bytes.fromhex(text), dtype=np.uint8) / 255
