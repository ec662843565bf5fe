"""The data sets of a notebook that there are, since MNIST and Fashion-MNIST cannot be had everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from data_gen.core.dataset import Dataset
from reproduction.ch4_sensitivity.compute import images_of

OF_THE_THESIS = ("mnist", "fashion_mnist")  # images of 28 x 28 pixels


def available(names: Sequence[str], profile: str) -> dict[str, Dataset]:
    """Name -> data set, without those that cannot be had; the digits where none of them can."""
    found = {name: images_of(name, profile) for name in names}
    there = {name: data for name, data in found.items() if data is not None}
    if there:
        return there
    digits = images_of("digits", profile)
    assert digits is not None  # they come with scikit-learn
    return {"digits": digits}
