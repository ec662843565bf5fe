"""What serves the papers only: their tasks, models and figures, one package for each notebook.

Notebook X imports `reproduction.X`, the shared folders (`core`, `models`, `classifiers`, `resnet20`) and the library. A
few notebooks use a neighbour's package; these are declared where the direction of imports is checked. `book` holds the
machinery of a build, `tools` the long runs that are no part of it.
"""
