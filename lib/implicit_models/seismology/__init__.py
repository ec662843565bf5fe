"""Seismology: P travel times, the sphere's geometry, picks, and the location of earthquakes.

`picks` and `stations` read files, `table` holds travel times, `geiger` locates by least squares, `learned` by a trained
network; `locate`, for a table of picks, is in the module of that name, which is a command too.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
