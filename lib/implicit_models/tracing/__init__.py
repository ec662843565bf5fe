"""A torch network read as a list of typed steps: what `compose` makes matrices of, `sim` fits, and bounds go through.

`nodes` holds the steps, and `Graph` their list in order of execution; `reading` traces a network and makes the graph,
with the rules of `modules`, `functions`, `spatial`, `rearrangements` and `recurrent`, one list for all readers;
`windows` says which positions a pooling layer or a convolution sees, `reparametrisation` resolves pruned and
weight-normed modules. It imports models and maps of the library, and neither compose, sim nor robustness.
"""
