"""Implicit layers for PyTorch.

    x = phi(A x + B u + b)      equilibrium equation, state x of size n
    y = C x + D u + d           prediction equation

The papers stack samples as the columns of U, X, Y; here, as everywhere in PyTorch, a sample is a ROW: U (N, p),
X (N, n), Y (N, q), with A (n, n), B (n, p), C (q, n), D (q, p). Sequences are (N, T, p).

Source:
    Tsai (2024), (2.1) and section 5.1; Decugis et al. (2024), section 2.
"""

from implicit_models.equilibrium.convergence import SolveStatistics
from implicit_models.model import ImplicitModel
from implicit_models.recurrent import ImplicitRNN

__all__ = ["ImplicitModel", "ImplicitRNN", "SolveStatistics"]
