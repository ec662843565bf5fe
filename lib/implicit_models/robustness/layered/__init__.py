"""Bounds of layered models: a network's layers as operators, bounded one after the other.

`operators` (dense, sparse, convolution, ...) and `network` (the layers in order) say what the model is, `lines` what a
unit is replaced by, `backward` carries functionals back; `crown` bounds layer by layer with intervals and these, and
`input_splits` and `unit_splits` (with its `unit_tree`) search for an answer by parts of the set. Nothing here knows
feedback, for which `bounding` stands; this folder may import `bounding.result` and what is below it.
"""
