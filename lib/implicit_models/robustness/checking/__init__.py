"""A stand-alone check of certificates: NumPy only, no code of the solvers, rounding on the safe side."""
