"""Controls of the earthquake task that tell the absence of biases from the rest: the residual MLP without them, plain
and with a skip."""

from __future__ import annotations

from reproduction.ch5_earthquake import task
from reproduction.models.eikonet_bias_free import BiasFreeEikoNet

SETTING = "papers"
LABELS = {
    "eikonet_bias_free": "residual MLP without biases",
    "eikonet_bias_free_skip": "residual MLP + skip, no biases",
}


def models(name: str, seed: int, profile: str = "full") -> dict[str, task.Model]:
    """Name -> (constructor, recipe) of the controls of a setting, trained as its other models are; none but in the
    papers' setting.

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
    }
