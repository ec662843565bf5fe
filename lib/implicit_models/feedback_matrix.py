"""The matrix A of a model as a PyTorch user may have left it: a parameter, one with a parametrization, or pruned; what
decides it, and its projection through that.

A model's `project_` and `project_after` call these.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from implicit_models.projection import project_rows, project_rows_


def deciding_parameters(model: nn.Module) -> list[Any]:
    """The parameters that A is made of.

    Raises:
        TypeError: where `project_feedback_matrix` could not write them.
    """
    if "A" in model._parameters:
        return [model._parameters["A"]]
    if parametrize.is_parametrized(model, "A"):
        return list(model.parametrizations.A.parameters())  # type: ignore[union-attr]
    if "A_orig" in model._parameters and "A_mask" in model._buffers:  # torch.nn.utils.prune
        return [model._parameters["A_orig"]]
    made_of = ", ".join(name for name in model._parameters if name.startswith("A_")) or "no parameter"
    raise TypeError(
        f"A is made anew of {made_of} before each call, so that a projection of it would be lost: use"
        " torch.nn.utils.parametrizations (weight_norm) or torch.nn.utils.prune, which are projected through"
    )


def project_feedback_matrix(model: Any) -> None:
    """Project the rows of A on the l1 ball of radius kappa, in place, through whatever decides A; of a model with
    feedback "strict_upper", drop what is below.

    Raises:
        TypeError: for a sparse A, which is not trained, and for an A that another tensor decides and that cannot be
            written.
    """
    if model.A.layout is not torch.strided:
        raise TypeError("a sparse A is a constant of the model and is never projected")
    if "A" in model._parameters:
        if model.feedback == "strict_upper":
            with torch.no_grad():
                model.A.triu_(1)
        project_rows_(model.A, model.kappa)
    elif parametrize.is_parametrized(model, "A"):
        _project_parametrized(model)
    else:
        (original,) = deciding_parameters(model)
        with torch.no_grad():
            W = project_rows(_allowed(model, original * model.A_mask), model.kappa)
            original.copy_(torch.where(model.A_mask != 0, W, original))
        with torch.enable_grad():
            model.A = original * model.A_mask


def _allowed(model: Any, W: Tensor) -> Tensor:
    return W.triu(1) if model.feedback == "strict_upper" else W


def _inside(model: Any) -> bool:
    return bool((_allowed(model, model.A).abs().sum(1, dtype=torch.float64) <= model.kappa).all())


@torch.no_grad()
def _project_parametrized(model: Any) -> None:
    if _inside(model):
        return
    originals = list(model.parametrizations.A.parameters())
    before = [t.clone() for t in originals]
    W = _allowed(model, model.A)
    problem = ""
    try:
        # what is made of the right inverse differs by rounding
        model.A = project_rows(W, model.kappa * (1 - 64 * torch.finfo(W.dtype).eps))
    except (RuntimeError, ValueError) as error:  # of a parametrization without a right inverse, or of the right inverse
        problem = f"cannot be set ({error})"
    if not problem and not _inside(model):
        problem = "does not give a projected A back"
    if problem:
        for t, value in zip(originals, before, strict=True):
            t.copy_(value)
        kinds = ", ".join(type(m).__name__ for m in model.parametrizations.A)
        raise TypeError(
            f"the parametrization {kinds} of A {problem}, so that its rows would leave the ball of radius"
            f" {model.kappa:g}: project within the parametrization, or remove it"
        )
