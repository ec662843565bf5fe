"""Data sets of the five papers: synthetic generators and resolvers of public data, in NumPy.

Every generator takes one `seed` and returns a `Dataset`; same seed, same arrays. Importing this package imports none of
the generators; each is loaded when first named.

`core` holds the data set, its streams of random numbers and the one resolver of public files; `synthetic`, `images`,
`text` and `market` and `earthquakes` import it, and not each other. Nothing here imports the library or torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
