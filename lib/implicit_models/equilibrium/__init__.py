"""Equilibrium solvers for x = phi(A x + b) and the gradients through them.

The compiled kernels can be imported without torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
