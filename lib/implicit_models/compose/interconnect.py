"""Implicit models made of others and of feed-forward networks.

    cascade     y = g(f(u))            A = [A_g, B_g C_f; 0, A_f], states of g first
    parallel    y = (f(u_1), g(u_2))   A = [A_g, 0; 0, A_f]; one input for both if asked for
    add         y = f(u) + g(u)
    multiply    y = f(u) g(u)          entrywise, for bounded outputs; states of the map "product" come first
    feedback    y = f(u + g(y))        A is full: the gains of the parts decide

In the first four A is block triangular, so that lambda_PF of the whole is the largest of the parts', and the whole is
well-posed when the parts are. Every interconnection leaves the certificate made of its parts' in `model.proof`
(`compose.certificate`); `model.certificate()` looks for one anew. A feed-forward network has a strictly upper
triangular A: substitution solves it, which is its forward pass.

Source:
    Tsai thesis (2024), section 2.4 (composition rules), section 2.5, (2.9), (2.10) with l = 0, ..., L - 1.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from implicit_models.activations import Activation
from implicit_models.compose.certificate import gain, loop_proof, triangular_proof
from implicit_models.compose.network import assembled, implicit_value
from implicit_models.compose.values import Assembly, Value, product_value, sum_value
from implicit_models.equilibrium.settings import SolverSettings, joined_settings
from implicit_models.matrices import csr_tensor, scipy_csr
from implicit_models.model import ImplicitModel, checked_size
from implicit_models.tracing.nodes import numbers
from implicit_models.tracing.reading import read
from implicit_models.wellposed import Certificate

__all__ = ["add", "cascade", "feedback", "from_network", "multiply", "parallel"]

_TOL = 1e-10  # of the comparison with the network in float64, relative to outputs of size 1 and more
_SAMPLES = 8


def from_network(
    network: nn.Module,
    input_shape: int | tuple[int, ...] | None = None,
    *,
    dtype: torch.dtype | None = None,
    **settings: Any,
) -> ImplicitModel:
    """Implicit model of a feed-forward network in evaluation mode, with sparse constant matrices.

    Mathematics: x = (x_L, ..., x_1), A strictly upper triangular with the blocks W_{L-1}, ..., W_1, B and C with W_0
    and W_L; biases are b and d. Linear maps that follow each other are multiplied. The outputs are compared with the
    network's on random inputs, in float64.

    Args:
        network: modules of `tracing.modules.MODULES` (linear maps, convolutions, pooling, batch normalisation, ReLU,
            ReLU6, leaky ReLU, PReLU, tanh, sigmoid, softmax, dropout, vanilla recurrent networks, implicit models),
            nested in any module whose forward torch.fx traces, with sums, concatenations, rearrangements, and products
            of bounded tensors; pruned and weight-normed modules as they are at present.
        input_shape: features of a sample, or its shape without the batch, such as (1, 28, 28), flattened row by row;
            None reads it from the first layer, if that is linear.
        dtype: of the matrices; the network's own if None.
        settings: of the solver, see `ImplicitModel.from_matrices`. One that is not given is that of the implicit
            models in the network where they agree, and the stricter one where they differ (`joined_settings`).

    Returns:
        model with CSR buffers A (n, n), B (n, p), C (q, n), D (q, p) or None without a path past all activations; b
        (n,), d (q,).

    Raises:
        TypeError: naming the module that has no conversion and its path, or the parameter in half precision or of
            another dtype than the rest.
        ValueError: for shapes that do not fit, for batch normalisation or dropout in training mode, naming a parameter
            that is not finite, or if the model and the network differ, naming the first module that does.

    Source:
        Tsai thesis (2024), (2.9), (2.10).
    """
    if not isinstance(network, nn.Module):
        raise TypeError(f"expected a torch module, got {type(network).__name__}")
    own = next(
        (t.dtype for t in (*network.parameters(), *network.buffers()) if t.is_floating_point()),
        torch.get_default_dtype(),
    )
    graph = read(network, _shape(network, input_shape), dtype=torch.float64)
    assembly, value = assembled(graph)
    A, B, C, D, b, d, activation = assembly.matrices(value)
    if len(value.shape) != 1:
        raise ValueError(f"the network's output must be a vector, got shape {value.shape}: end it with Flatten")
    exact = _model(A, B, C, D, b, d, activation, torch.float64, dense=False, settings={"tol": 1e-13, "max_iter": 5000})
    _compare(network, graph.traced, exact, graph.input.shape)
    settings = joined_settings(_settings_of(network), settings, compiled=False)
    model = _model(A, B, C, D, b, d, activation, dtype or own, dense=False, settings=settings).requires_grad_(False)
    model.steps = graph  # type: ignore[assignment]  # bounds go layer by layer
    return model


def _compare(network: nn.Module, reference: nn.Module, exact: ImplicitModel, shape: tuple[int, ...]) -> None:
    u = torch.randn(_SAMPLES, math.prod(shape), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        y, mine = reference(u.clone().reshape(_SAMPLES, *shape)), exact(u)
    error = float((y - mine).abs().max() / y.abs().max().clamp_min(1)) if y.numel() else 0.0
    feedback = any(isinstance(m, ImplicitModel) for m in reference.modules())
    if not error <= (1e-5 if feedback else _TOL):  # an implicit part is solved to its own tolerance
        raise ValueError(f"the model differs from {type(network).__name__} by {error:.3g} on random inputs")


def _shape(network: nn.Module, input_shape: int | tuple[int, ...] | None) -> tuple[int, ...]:
    if input_shape is None:
        first = next((m for m in network.modules() if isinstance(m, (nn.Linear, ImplicitModel))), None)
        if first is None:
            raise ValueError("input_shape is needed: the network has no linear layer to read it from")
        return (first.in_features,)
    sizes = tuple(input_shape) if isinstance(input_shape, (tuple, list, torch.Size)) else (input_shape,)
    return tuple(checked_size("input_shape", k) for k in sizes)


def _settings_of(*networks: Any) -> list[SolverSettings]:
    """Those of the implicit models that networks are or contain; other modules have none."""
    inside = (m for network in networks if isinstance(network, nn.Module) for m in network.modules())
    return [m.settings for m in inside if isinstance(m, ImplicitModel)]


def _model(A, B, C, D, b, d, activation, dtype, *, dense, settings) -> ImplicitModel:
    def cast(M: sp.csr_array) -> torch.Tensor:
        M.sum_duplicates()  # and sorts the indices, which torch asks for
        return torch.from_numpy(M.toarray()).to(dtype) if dense else csr_tensor(M, dtype, torch.device("cpu"))

    vector = lambda v: torch.from_numpy(v).to(dtype) if v.any() else None
    return ImplicitModel.from_matrices(
        cast(A), cast(B), cast(C), cast(D) if D.nnz else None, activation, b=vector(b), d=vector(d), **settings
    )


def cascade(f: ImplicitModel, g: ImplicitModel, **settings: Any) -> ImplicitModel:
    """The model u -> g(f(u)).

    Mathematics: x = (x_g, x_f), A = [A_g, B_g C_f; 0, A_f], B = [B_g D_f; B_f], C = [C_g, D_g C_f], D = D_g D_f, and
    the biases that follow. Its certificate holds when those of f and g do: (s_g, t s_f) proves it for every small t >
    0.

    Args:
        f, g: models, or networks that `from_network` reads; g has as many inputs as f outputs.
        settings: of the solver. One that is not given is that of the parts where they agree, and the stricter one
            where they differ (`joined_settings`); layers without feedback have none.

    Returns:
        model with copies of the matrices, sparse if one of the parts is sparse.

    Raises:
        ValueError: for sizes that do not fit.
        TypeError: for parts of different dtypes.

    Source:
        Tsai thesis (2024), section 2.4.
    """
    f, g, settings = _parts(f, g, settings)
    if g.in_features != f.out_features:
        raise ValueError(f"g reads {g.in_features} features, but f has {f.out_features} outputs")
    assembly = Assembly(f.in_features)
    return _finish(
        assembly,
        implicit_value(assembly, g, implicit_value(assembly, f, assembly.input((f.in_features,)))),
        f,
        g,
        settings,
    )


def parallel(f: ImplicitModel, g: ImplicitModel, *, shared_input: bool = False, **settings: Any) -> ImplicitModel:
    """The model (u_1, u_2) -> (f(u_1), g(u_2)), or u -> (f(u), g(u)) with a shared input.

    Mathematics: A = diag(A_g, A_f); lambda_PF is the larger of the two.

    Args:
        f, g: models, or networks that `from_network` reads.
        shared_input: both read the same u.
        settings: of the solver. One that is not given is that of the parts where they agree, and the stricter one
            where they differ (`joined_settings`); layers without feedback have none.

    Raises:
        ValueError: if inputs that are shared differ in number.
        TypeError: for parts of different dtypes.

    Source:
        Tsai thesis (2024), section 2.4.
    """
    f, g, settings = _parts(f, g, settings)
    assembly, (u, v) = _inputs(f, g, shared_input)
    one, two = implicit_value(assembly, f, u), implicit_value(assembly, g, v)
    q, r = f.out_features, g.out_features
    top, bottom = sp.eye_array(q + r, q, format="csr"), sp.eye_array(q + r, r, k=-q, format="csr")
    return _finish(assembly, sum_value(one.map(top, None, (q + r,)), two.map(bottom, None, (q + r,))), f, g, settings)


def add(f: ImplicitModel, g: ImplicitModel, **settings: Any) -> ImplicitModel:
    """The model u -> f(u) + g(u); arguments and errors are those of `parallel`, and the outputs must be as many.

    A setting of the solver that is not given is that of the parts where they agree, the stricter one where they differ.
    """
    f, g, settings = _parts(f, g, settings)
    if f.out_features != g.out_features:
        raise ValueError(f"f has {f.out_features} outputs, g has {g.out_features}: they cannot be added")
    assembly, (u, v) = _inputs(f, g, True)
    return _finish(assembly, sum_value(implicit_value(assembly, f, u), implicit_value(assembly, g, v)), f, g, settings)


def _parts(
    f: Any, g: Any, given: dict[str, Any], *, componentwise: bool = True
) -> tuple[ImplicitModel, ImplicitModel, dict[str, Any]]:
    """The parts as models, and the settings of what is made of them; componentwise: it has no blocks of its own."""
    own = _settings_of(f, g)
    f, g = (m if isinstance(m, ImplicitModel) else from_network(m) for m in (f, g))
    if f.A.dtype != g.A.dtype:
        raise TypeError(f"f is {f.A.dtype}, but g is {g.A.dtype}")
    compiled = componentwise and _all_dense(f, g) and f.activation.componentwise and g.activation.componentwise
    return f, g, joined_settings(own, given, compiled=compiled)


def _inputs(f: ImplicitModel, g: ImplicitModel, shared: bool) -> tuple[Assembly, tuple[Value, Value]]:
    p, r = f.in_features, g.in_features
    if shared:
        if p != r:
            raise ValueError(f"f reads {p} features, g reads {r}: they cannot share an input")
        assembly = Assembly(p)
        return assembly, (assembly.input((p,)), assembly.input((p,)))
    assembly = Assembly(p + r)
    whole = assembly.input((p + r,))
    take = sp.eye_array(p, p + r, format="csr"), sp.eye_array(r, p + r, k=p, format="csr")
    return assembly, (whole.map(take[0], None, (p,)), whole.map(take[1], None, (r,)))


def multiply(f: ImplicitModel, g: ImplicitModel, **settings: Any) -> ImplicitModel:
    """The model u -> f(u) g(u), entrywise, of parts with bounded outputs.

    Mathematics: |f_k| <= c_k and |g_k| <= e_k for every input, read off the maps and matrices, give new states
    phi(f_k / c_k, g_k / e_k) of the map "product", weighted c_k e_k. With constants L_f, L_g of the parts in the
    infinity norm, |y_k(u) - y_k(v)| <= (e_k L_f,k + c_k L_g,k) max|u - v|, kept in `model.lipschitz` (q,), inf where a
    part has no certificate.

    Args:
        as `add`; a setting of the solver that is not given is that of the parts where they agree, the stricter one
            where they differ.

    Raises:
        ValueError: naming the factor without a bound (a skip D, or a read-out of ReLU states that an input drives, has
            none).

    Source:
        Tsai thesis (2024), section 2.4, multiplicative connections (constant max{c_2 gamma_1, c_1 gamma_2} in the l1
        norm of (f, g)).
    """
    f, g, settings = _parts(f, g, settings, componentwise=False)
    if f.out_features != g.out_features:
        raise ValueError(f"f has {f.out_features} outputs, g has {g.out_features}: they cannot be multiplied")
    assembly, (u, v) = _inputs(f, g, True)
    one, two = implicit_value(assembly, f, u), implicit_value(assembly, g, v)
    value = product_value(assembly, one, two)
    own = Certificate("pf", 1.0, np.ones(assembly.n - f.n_states - g.n_states), 0.0)
    model = _finish(assembly, value, f, g, settings, first=own)
    reach = [assembly.reach(v) for v in (one, two)]
    L = [gain(part).sum(axis=1) for part in (f, g)]
    constants = [
        np.where(size > 0, size, 0.0) * np.where(size > 0, own, 0.0) for size, own in zip(reach[::-1], L, strict=True)
    ]
    model.lipschitz = constants[0] + constants[1]
    return model


def feedback(f: ImplicitModel, g: ImplicitModel, **settings: Any) -> ImplicitModel:
    """The loop y = f(u + g(y)).

    Mathematics: with v = u + g(y), M = (I - D_g D_f)^-1 and x = (x_f, x_g),
    v = M (u + D_g C_f x_f + C_g x_g + D_g d_f + d_g), y = C_f x_f + D_f v + d_f, x_f = phi_f(A_f x_f + B_f v + b_f),
    x_g = phi_g(A_g x_g + B_g y + b_g). Well-posed parts do not make a well-posed loop; lambda_PF(S_g S_f) < 1 for their
    gains does, and `model.proof` says so or is of kind "none".

    Args:
        f: p -> q.
        g: q -> p; models, or networks that `from_network` reads.
        settings: of the solver. One that is not given is that of the parts where they agree, and the stricter one
            where they differ (`joined_settings`); layers without feedback have none.

    Raises:
        ValueError: for sizes that do not fit, or where the direct paths make a loop without a solution (I - D_g D_f
            singular).

    Source:
        Tsai thesis (2024), section 2.4; Zhou, Doyle and Glover (1996) for the algebra of loops.
    """
    f, g, settings = _parts(f, g, settings)
    if f.out_features != g.in_features or g.out_features != f.in_features:
        raise ValueError(
            f"f maps {f.in_features} to {f.out_features}, g maps {g.in_features} to {g.out_features}: the loop does not"
            " close"
        )
    Af, Bf, Cf, Df, bf, df = _arrays(f)
    Ag, Bg, Cg, Dg, bg, dg = _arrays(g)
    loop = np.eye(f.in_features) - (Dg @ Df).toarray()
    if not np.linalg.cond(loop) < 1 / (len(loop) * np.finfo(float).eps):
        raise ValueError(
            "the direct paths D_g D_f close a loop without a unique solution: cond(I - D_g D_f) ="
            f" {np.linalg.cond(loop):.3g}"
        )
    M = sp.csr_array(np.linalg.inv(loop))
    Vx, Vu, v0 = M @ sp.hstack([Dg @ Cf, Cg], format="csr"), M, M @ (Dg @ df + dg)
    Yx = Df @ Vx + sp.hstack([Cf, sp.csr_array((f.out_features, g.n_states))], format="csr")
    Yu, y0 = Df @ Vu, Df @ v0 + df
    A = sp.block_diag([Af, Ag], format="csr") + sp.vstack([Bf @ Vx, Bg @ Yx], format="csr")
    B = sp.vstack([Bf @ Vu, Bg @ Yu], format="csr")
    b = np.concatenate([Bf @ v0 + bf, Bg @ y0 + bg])
    joined = Activation(
        [
            *f.activation.segments,
            *(replace(s, start=s.start + f.n_states, stop=s.stop + f.n_states) for s in g.activation.segments),
        ]
    )
    A, B, C, D = (sp.csr_array(X) for X in (A, B, Yx, Yu))
    model = _model(A, B, C, D, b, y0, joined, f.A.dtype, dense=_all_dense(f, g), settings=settings)
    model.proof = loop_proof(model, f, g)
    return model


def _arrays(m: ImplicitModel) -> tuple[Any, ...]:
    """A, B, C, D (zeros for None), b, d in float64, the matrices as CSR."""
    A, B, C = (scipy_csr(M).astype(np.float64) for M in (m._feedback_matrix(), m.B, m.C))
    D = sp.csr_array((m.out_features, m.in_features)) if m.D is None else scipy_csr(m.D).astype(np.float64)
    b, d = (np.zeros(k) if t is None else numbers(t) for t, k in ((m.b, m.n_states), (m.d, m.out_features)))
    return A, B, C, D, b, d


def _all_dense(f: ImplicitModel, g: ImplicitModel) -> bool:
    return all(M is None or M.layout is torch.strided for m in (f, g) for M in (m.A, m.B, m.C, m.D))


def _finish(
    assembly: Assembly,
    value: Value,
    f: ImplicitModel,
    g: ImplicitModel,
    settings: dict[str, Any],
    first: Certificate | None = None,
) -> ImplicitModel:
    """The composed model, with the proof made of those of (first,) g and f, in the order of its states."""
    A, B, C, D, b, d, activation = assembly.matrices(value)
    model = _model(A, B, C, D, b, d, activation, f.A.dtype, dense=_all_dense(f, g), settings=settings)
    proofs = [g.certificate(), f.certificate()]
    sizes = [g.n_states, f.n_states]
    if first is not None:
        proofs, sizes = [first, *proofs], [assembly.n - sum(sizes), *sizes]
    model.proof = triangular_proof(model, sizes, proofs)
    return model
