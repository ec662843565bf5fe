"""Implicit models made of others, and of feed-forward networks.

`interconnect` joins models (cascade, parallel, sum, product, feedback); `network` makes matrices of the steps of a
torch network (`tracing`), with `spatial` for its convolutions and pooling and `values` for what flows between them;
`attention` is a layer that can be read; `certificate` gives composed models theirs. `onnx_files` (with `onnx_builder`,
`onnx_operators`, `onnx_rearrangements`, `onnx_windows`) and `nnet_files` read networks from files. It imports models,
tracing and well-posedness, and nothing of sim, robustness or seismology.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
