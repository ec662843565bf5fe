"""Bounds of layered models: a network's layers as operators, bounded one after the other.

`operators` (dense, sparse, convolution, ...) and `network` (the layers in order) say what the model is, `lines` what a
unit is replaced by, `forward` propagates intervals, `backward` functionals; `crown` bounds layer by layer with both,
`slopes` raises what it found. Nothing here knows feedback, for which `bounding` stands; this folder may import
`bounding.result` and what is below it.
"""
