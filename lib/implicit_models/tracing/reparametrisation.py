"""Networks whose weights are computed from others, before that is undone: pruned, weight-normed, spectrally normed.

torch.nn.utils.parametrize        weight = g(original), of a class of its own (parametrizations.weight_norm, ...)
torch.nn.utils.prune              weight = original times a mask, by a hook before each call
torch.nn.utils.weight_norm,       weight = g v / ||v||, and weight / sigma, by such hooks
spectral_norm
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

HOOKS = (prune.BasePruningMethod, WeightNorm, SpectralNorm)


@torch.inference_mode(False)
def plain_copy(network: nn.Module) -> nn.Module:
    """A copy in which such weights are parameters with the values that they have in evaluation mode; the network stays
    as it was."""
    memo: dict[int, Any] = {}  # a weight that a hook computed has a history, which is not copied
    for module in network.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    out = copy.deepcopy(network, memo)
    for module in out.modules():
        mode = module.training
        if parametrize.is_parametrized(module):
            module.eval()  # an iteration of the spectral norm is for training
            with torch.no_grad():
                values = {name: getattr(module, name) for name in module.parametrizations}  # type: ignore[union-attr]
            # torch's own removal would change the class, which the network itself still has
            module.__class__ = parametrize.type_before_parametrizations(module)
            del module._modules["parametrizations"]
            for name, value in values.items():
                module.register_parameter(name, nn.Parameter(value.detach().clone()))
        for key, hook in list(module._forward_pre_hooks.items()):
            if isinstance(hook, HOOKS):
                module.eval()
                with torch.no_grad():
                    _resolve(module, key, hook)
        module.training = mode
    return out


def _resolve(module: nn.Module, key: int, hook: Any) -> None:
    """The weight of a hook becomes a parameter, and what it was made of goes."""
    parts: tuple[str, ...]
    if isinstance(hook, prune.BasePruningMethod):
        name = hook._tensor_name
        value, parts = hook.apply_mask(module), (f"{name}_orig", f"{name}_mask")
    elif isinstance(hook, WeightNorm):
        name = hook.name
        value, parts = hook.compute_weight(module), (f"{name}_g", f"{name}_v")
    else:
        name = hook.name
        value = hook.compute_weight(module, do_power_iteration=False)
        parts = (f"{name}_orig", f"{name}_u", f"{name}_v")
    for part in parts:
        if part in module._parameters or part in module._buffers:
            delattr(module, part)
    vars(module).pop(name, None)
    module._parameters.pop(name, None)
    del module._forward_pre_hooks[key]
    module.register_parameter(name, nn.Parameter(value.detach().clone()))
