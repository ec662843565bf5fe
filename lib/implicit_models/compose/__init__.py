"""Implicit models made of others, and of feed-forward networks.

`interconnect` joins models (cascade, parallel, sum, product, feedback), `network` reads a torch network into matrices,
with `spatial`, `recurrent`, `attention` and `tensors` for its kinds of layers and `values` for what flows between them;
`certificate` gives composed models theirs. It imports models and well-posedness, and nothing of sim, robustness or
seismology.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
