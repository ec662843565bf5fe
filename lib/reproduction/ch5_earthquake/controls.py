"""Controls of the earthquake task that tell the absence of biases and the time of a training from the rest: the
residual MLP without biases, plain and with a skip, and the papers' own with as much time as the implicit model has."""

from __future__ import annotations

import dataclasses

from reproduction.ch5_earthquake import task
from reproduction.models.eikonet_bias_free import BiasFreeEikoNet

SETTING = "papers"
# An epoch of the implicit model takes about three times as long as one of the residual MLP.
LONGER = 3
LABELS = {
    "eikonet_bias_free": "residual MLP without biases",
    "eikonet_bias_free_skip": "residual MLP + skip, no biases",
    "eikonet_long": f"residual MLP, {LONGER} times the epochs",
}


def models(name: str, seed: int, profile: str = "full") -> dict[str, task.Model]:
    """Name -> (constructor, recipe) of the controls of a setting, trained as its other models are but for
    `eikonet_long`; none but in the papers' setting.

    Args:
        name: key of `reproduction.ch5_earthquake.task.SETTINGS`.
        seed: of the initial weights.
        profile: decides epochs and batch.
    """
    chosen, trained = task.setting_of(name), task.models(name, seed, profile)
    if name != SETTING:
        return {}
    p, q, recipe = chosen.in_features, len(chosen.outputs), trained["eikonet"][1]
    return {
        "eikonet_bias_free": (lambda: BiasFreeEikoNet(p, q, seed=seed), recipe),
        "eikonet_bias_free_skip": (lambda: BiasFreeEikoNet(p, q, skip=True, seed=seed), recipe),
        "eikonet_long": (trained["eikonet"][0], dataclasses.replace(recipe, epochs=LONGER * recipe.epochs)),
    }
