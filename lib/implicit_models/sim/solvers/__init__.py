"""Row problems min 1/2 ||M a - z||^2 + lambda ||a||_1 and their kin, on Gram matrices, each with its duality gap.

NumPy, compiled kernels and `sim.problem` alone: no network, no torch, nothing of `sim.network`.
"""
