"""A network with a given share of its weights: the rows of its own convolutions and linear layers, on shared kernels.

`layers` finds the weighted steps of a network, and for each the way from its value to the next map that is not
componentwise affine; `moments` are the sums that its rows need, `rows` their supports, refits and certificates;
`effects` say what an error there does to the outputs; `passes` takes the layers in order, each fitted on what the
sparse network itself computes; `recipe` shares the budget out and repeats that; `network` is what comes of it, and
`report` says what is proved of it. It imports solvers, scheduling and the reader of networks, and knows nothing of rows
of other models.
"""
