"""Robustness of implicit models: bounds, certificates and their checker, sensitivity, attacks, worst-case losses.

`bound_methods` (`bounds`), `certification` (`certify`), `verification` (`verify_property`) and `attacks` (`attack`) are
the entrances; `problem`, `input_sets` (`Box`, `SparseBox`) and `specification` say what is asked, `bounding.options`
(`Dual`, `LP`) and
`attacks.options` (`PGD`, ...) how; `vnnlib` reads properties from files, and `verify` is the command; `bounding` holds
the methods, `checking` the checker, which shares no code with them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
