"""The compiled part of the solvers: sweeps, Newton steps and recurrences by numba, on arrays alone.

They know neither torch nor models; `equilibrium.compiled` and `recurrence` call them.
"""
