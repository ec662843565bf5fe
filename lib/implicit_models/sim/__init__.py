"""State-driven implicit modelling: a trained network's states, exact row solvers, the path, screening, fitted models.

What is asked stands here: `problem` (budgets, objectives, tolerances, below all others), `fit` for one implicit model,
`layerwise` for a network layer by layer on one of the `row_models`, `result`, `sparse_model` and `report`. `network`
reads torch networks and makes row problems of them, `solvers` solves them and knows no network, `parallel` runs chunks
and knows neither.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
