"""Implicit deep learning: equilibrium models x = phi(A x + B u), y = C x + D u.

Importing this package imports none of its heavy dependencies; a public name is resolved on first use (PEP 562).
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
