"""What several notebooks share: training and its cache, budgets, scores, pruning, line styles and figures.

It imports `models`, the library and `data_gen`, and no notebook's package.
"""
