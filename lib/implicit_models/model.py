"""The implicit layer: an equilibrium state and a linear read-out. Conventions: `implicit_models.layers`."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any, Self, Unpack

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.activations import Activation, ActivationSpec, resolve_activation
from implicit_models.equilibrium.convergence import SolveStatistics
from implicit_models.equilibrium.implicit import differentiable_result, differentiable_solve
from implicit_models.equilibrium.settings import SolverOptions, SolverSettings, solver_settings
from implicit_models.equilibrium.solve import EquilibriumResult, Solution, automatic_plan
from implicit_models.equilibrium.triangular import TriangularPlan
from implicit_models.feedback_matrix import deciding_parameters, project_feedback_matrix
from implicit_models.matrices import as_tensor, check_finite, product
from implicit_models.projection import transformed
from implicit_models.wellposed import Certificate, certificate

FEEDBACK = ("full", "strict_upper")
NOT_A_GRAPH = (
    "cannot record an implicit model: the number of its iterations depends on the data. Save model.state_dict() and"
    " solve x = phi(A x + B u + b) where it is used, or, for a model made by compose.from_network, {verb} the network"
    " that was read"
)


@torch._disable_dynamo  # and not torch.compiler.disable, whose import takes seconds
def uncompiled(method: Callable[..., Any], *inputs: Any) -> Any:
    """The method as it is: torch.compile goes around a solver, whose kernels are compiled already."""
    return method(*inputs)


def check_flag(name: str, value: Any) -> None:
    """Raises: TypeError for anything but True and False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def checked_size(name: str, value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


class ImplicitModel(nn.Module):
    """Implicit layer u -> y: an equilibrium state and a linear read-out.

    Mathematics: x = phi(A x + B u + b), y = C x + D u + d with ||A||_inf <= kappa kept by `project_` after each step.
    Inputs (*, in_features), outputs (*, out_features), as `nn.Linear`.

    Args:
        in_features, out_features, n_states: p, q, n.
        activation: name or list of (name, size) that partitions the state.
        kappa: bound of the row norms of A, in (0, 1).
        skip: D is None if False.
        bias: b (n,) and d (q,), else None.
        feedback: "full", or "strict_upper": A is strictly upper triangular, in values and in gradient.
        seed: seeds the initial matrices, randn / n, through a generator of its own; None draws them from torch's, so
            that `torch.manual_seed` decides. They are drawn on the CPU: the same on every device.
        device, dtype: of the parameters, as in `nn.Linear`; torch's defaults if None. Nothing is drawn on "meta".
        settings: solver, tol, tol_mode, max_iter, backward, on_failure: see `SolverSettings`; they belong to this
            instance.

    Precision: inputs have the dtype of the parameters. Half precision is solved as it is, by Picard, and `tol` must be
    one that it resolves (`NotConverged` says which); under `torch.autocast` the layer runs in the dtype of A.
    torch.func: vmap, grad, jacrev, jacfwd and jacrev(jacfwd) go through, each sample's gradient by vmap(grad) included.
    Pruning (`torch.nn.utils.prune`) and parametrizations with a right inverse of A are projected through.

    Raises:
        TypeError, ValueError: naming the argument.
        ValueError: naming a parameter that is not finite, when it is met.

    Source:
        Tsai (2024), (2.1), section 5.2 (initialisation and projection).
    """

    proof: Certificate  # of an interconnection only, see `compose`, and so is its Lipschitz constant
    lipschitz: np.ndarray

    def __init__(
        self,
        in_features: int,
        out_features: int,
        n_states: int,
        *,
        activation: ActivationSpec = "relu",
        kappa: float = 0.95,
        skip: bool = True,
        bias: bool = False,
        feedback: str = "full",
        seed: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        **settings: Unpack[SolverOptions],
    ):
        p, q, n = (
            checked_size("in_features", in_features),
            checked_size("out_features", out_features),
            checked_size("n_states", n_states),
        )
        check_flag("skip", skip)
        check_flag("bias", bias)
        self._configure(activation, n, kappa, feedback, solver_settings(type(self).__name__, settings))
        generator = None if seed is None else torch.Generator().manual_seed(checked_size("seed", seed, least=0))
        device = torch.get_default_device() if device is None else torch.device(device)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating torch.dtype, got {dtype!r}")

        def draw(rows: int, columns: int) -> nn.Parameter:
            if device.type == "meta":
                return nn.Parameter(torch.empty(rows, columns, device=device, dtype=dtype))
            M = torch.randn(rows, columns, generator=generator, device="cpu", dtype=dtype) / n
            return nn.Parameter(M.to(device))

        self.A, self.B, self.C = draw(n, n), draw(n, p), draw(q, n)
        self.D = draw(q, p) if skip else None
        self.b = nn.Parameter(torch.zeros(n, device=device, dtype=dtype)) if bias else None
        self.d = nn.Parameter(torch.zeros(q, device=device, dtype=dtype)) if bias else None
        if device.type != "meta":
            self.project_()

    def _configure(self, activation, n, kappa, feedback, settings: SolverSettings) -> None:
        super().__init__()
        if isinstance(kappa, bool) or not isinstance(kappa, numbers.Real):
            raise TypeError(f"kappa must be a number, got {kappa!r}")
        if not 0 < float(kappa) < 1:
            raise ValueError(f"kappa must lie in (0, 1), got {kappa}")
        if feedback not in FEEDBACK:
            raise ValueError(f"unknown feedback {feedback!r}; choose one of {', '.join(FEEDBACK)}")
        self.settings = settings
        self.activation: Activation = resolve_activation(activation, n)
        self.kappa, self.feedback = float(kappa), feedback
        self.last_solve: SolveStatistics | None = None
        self._plan: tuple[tuple, TriangularPlan | None] | None = None

    @classmethod
    def from_matrices(
        cls,
        A: Any,
        B: Any,
        C: Any,
        D: Any = None,
        activation: ActivationSpec = "relu",
        *,
        b: Any = None,
        d: Any = None,
        kappa: float = 0.95,
        feedback: str = "full",
        **settings: Unpack[SolverOptions],
    ) -> Self:
        """Model with given matrices, copied, never projected: `certificate()` says whether A is well-posed.

        Args:
            A (n, n), B (n, p), C (q, n), D (q, p) or None: torch or NumPy, dense or sparse (torch CSR, SciPy). Dense
            ones
                become parameters; sparse ones buffers, not trained.
            activation: as in the constructor. b (n,), d (q,): bias vectors or None.
            kappa: for later calls of `project_`.
            feedback: "strict_upper" checks A and masks its gradient.
            settings: solver, tol, tol_mode, max_iter, backward, on_failure.

        Raises:
            TypeError, ValueError: naming the matrix and its shape.
        """
        checked = solver_settings("from_matrices", settings)
        A = as_tensor("A", A)
        if A.ndim != 2 or A.shape[0] != A.shape[1]:
            raise ValueError(f"A must be a square matrix, got shape {tuple(A.shape)}")
        B, C = as_tensor("B", B, A.dtype), as_tensor("C", C, A.dtype)
        n = A.shape[0]
        if B.ndim != 2 or B.shape[0] != n:
            raise ValueError(f"B must have {n} rows, one per state, got shape {tuple(B.shape)}")
        if C.ndim != 2 or C.shape[1] != n:
            raise ValueError(f"C must have {n} columns, one per state, got shape {tuple(C.shape)}")
        p, q = B.shape[1], C.shape[0]
        given = {"A": A, "B": B, "C": C}
        for name, value, shape in (("D", D, (q, p)), ("b", b, (n,)), ("d", d, (q,))):
            given[name] = None if value is None else as_tensor(name, value, A.dtype)
            if value is not None and tuple(given[name].shape) != shape:
                raise ValueError(f"{name} must have shape {shape}, got {tuple(given[name].shape)}")
        model = cls.__new__(cls)
        model._configure(activation, n, kappa, feedback, checked)
        for name, value in given.items():
            if value is None:
                setattr(model, name, None)
            elif value.layout is torch.strided:
                setattr(model, name, nn.Parameter(value.clone()))
            else:
                model.register_buffer(name, value.clone())
        if feedback == "strict_upper":
            if model.A.layout is not torch.strided:
                raise TypeError("feedback='strict_upper' is for a dense, trained A; a sparse A is used as it is")
            model._require_strict_upper(model.A)
        return model

    @staticmethod
    def _require_strict_upper(A: Tensor) -> None:
        lower = torch.nonzero(A.detach().tril())
        if lower.numel():
            i, j = lower[0].tolist()
            raise ValueError(
                f"feedback='strict_upper', but A[{i}, {j}] = {float(A[i, j].detach()):.6g} is on or below the diagonal"
            )

    @property
    def in_features(self) -> int:
        return self.B.shape[1]

    @property
    def out_features(self) -> int:
        return self.C.shape[0]

    @property
    def n_states(self) -> int:
        return self.A.shape[0]

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, n_states={self.n_states}, "
            f"activation={self.activation}, kappa={self.kappa}, skip={self.D is not None}, bias={self.b is not None}, "
            f"feedback={self.feedback!r}, solver={self.settings.solver!r}"
        )

    # deepcopy and pickle: a sparse tensor gives no access to its storage, so its three arrays travel instead
    def __getstate__(self) -> dict[str, Any]:
        def pack(t: Tensor | None) -> Any:
            if t is None or t.layout is torch.strided:
                return t
            return (t.crow_indices(), t.col_indices(), t.values(), tuple(t.shape))

        return {**self.__dict__, "_plan": None, "_buffers": {k: pack(t) for k, t in self._buffers.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for name, t in self._buffers.items():
            if isinstance(t, tuple):
                self._buffers[name] = torch.sparse_csr_tensor(*t[:3], size=t[3], check_invariants=True)

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs) -> None:
        if self.feedback == "strict_upper" and prefix + "A" in state_dict:
            self._require_strict_upper(state_dict[prefix + "A"])
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _feedback_matrix(self) -> Tensor:
        # the mask is in the graph, so that the gradient of the lower part is zero for any optimiser
        return self.A.triu(1) if self.feedback == "strict_upper" else self.A

    def _substitution(self) -> TriangularPlan | None:
        """Plan of a constant sparse A, kept until the buffer changes or moves; a solve looks at a trained A itself."""
        if self.A.layout is torch.strided:
            return None
        values = self.A.values()
        key = (values.data_ptr(), values._version, values.device, values.dtype)
        if self._plan is None or self._plan[0] != key:
            self._plan = (key, automatic_plan(self.A, self.activation, self.settings))
        return self._plan[1]

    def _check_input(self, U: Any, name: str = "U") -> None:
        self._check_recording()
        if not isinstance(U, Tensor):
            raise TypeError(f"{name} must be a torch tensor, got {type(U).__name__}")
        if not U.dtype.is_floating_point:
            raise TypeError(f"{name} must have a floating dtype, got {U.dtype}")
        if self.A.is_meta:
            raise RuntimeError("the parameters are on the meta device: to_empty(device=...) and load_state_dict first")
        if U.dtype != self.A.dtype or U.device != self.A.device:
            raise TypeError(f"{name} is {U.dtype} on {U.device}, but the model is {self.A.dtype} on {self.A.device}")

    def _check_samples(self, U: Any, rows: bool = False) -> None:
        """rows: (N, in_features) only."""
        self._check_input(U)
        if U.ndim == 0 or rows and U.ndim != 2:
            raise ValueError(f"U must have shape ({'N' if rows else '*'}, in_features), got {tuple(U.shape)}")
        if U.shape[-1] != self.in_features:
            raise ValueError(f"U must have {self.in_features} columns, one per input, got shape {tuple(U.shape)}")

    def _check_recording(self) -> None:
        if transformed() and any(M is not None and M.layout is not torch.strided for M in (self.B, self.C, self.D)):
            raise RuntimeError(
                "transforms of torch.func do not carry sparse matrices: make the model from dense ones, M.to_dense()"
            )
        if torch.jit.is_tracing() or torch.compiler.is_exporting():
            name, verb = ("export", "export") if torch.compiler.is_exporting() else ("jit.trace", "trace")
            raise RuntimeError(f"torch.{name} {NOT_A_GRAPH.format(verb=verb)}")

    def __prepare_scriptable__(self) -> None:  # the hook of torch.jit.script
        raise RuntimeError(f"torch.jit.script {NOT_A_GRAPH.format(verb='script')}")

    def _check_parameters(self) -> None:
        """Raise ValueError naming the first of the matrices and vectors that is not finite."""
        for name in ("A", "B", "C", "D", "b", "d"):
            M = getattr(self, name)
            if M is not None:
                check_finite(M.detach(), name)

    def _check_output(self, y: Tensor) -> None:
        """Outputs that are not finite come from an input, or from a parameter, which is an error."""
        if not transformed() and not math.isfinite(y.detach().sum().item()):
            self._check_parameters()

    def _autocast(self) -> bool:
        return not self.A.is_meta and torch.is_autocast_enabled(self.A.device.type)

    def _without_autocast(self, method: Callable[..., Any], *inputs: Any) -> Any:
        """The method in the dtype of A throughout: the tolerance of a solve has no meaning in a mixture of
        precisions."""
        with torch.autocast(self.A.device.type, enabled=False):
            return method(
                *(u.to(self.A.dtype) if isinstance(u, Tensor) and u.dtype.is_floating_point else u for u in inputs)
            )

    def _injection(self, U: Tensor) -> Tensor:
        return product(U, self.B, self.b)

    def _solve(self, z: Tensor, x0: Tensor | None = None) -> Solution:
        found = differentiable_solve(
            self._feedback_matrix(), z, self.activation, self.settings, x0, self._substitution(), self._check_parameters
        )
        self.last_solve = SolveStatistics(found.n_iter, found.residual, found.status, found.method)
        return found

    def _read_out(self, x: Tensor, U: Tensor) -> Tensor:
        C, D = self.C, self.D
        if D is None:
            return product(x, C, self.d)
        y = product(U, D, self.d)
        return torch.addmm(y, x, C.t()) if C.layout is torch.strided else y + product(x, C)

    def forward(self, U: Float[Tensor, "*batch p"]) -> Float[Tensor, "*batch q"]:
        """y = C x + D u + d at the equilibrium of every u of U; gradients in train and eval mode alike.

        Args:
            U: (*, in_features), the last dimension an input.

        Returns:
            (*, out_features).
        Under `torch.autocast` U is cast to the dtype of A and the whole layer runs in it: an equilibrium is solved to
        tol.
        """
        if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
            return uncompiled(self.forward, U)
        if self._autocast():
            return self._without_autocast(self.forward, U)
        self._check_samples(U)
        if U.ndim != 2:
            samples = U.reshape(math.prod(U.shape[:-1]), U.shape[-1])
            return self.forward(samples).reshape(*U.shape[:-1], self.out_features)
        y = self._read_out(self._solve(self._injection(U)).x, U)
        self._check_output(y)
        return y

    def equilibrium(self, U: Float[Tensor, "N p"], x0: Float[Tensor, "N n"] | None = None) -> EquilibriumResult:
        """State of every row of U with its residual, iterations and convergence; x carries the gradient.

        Args:
            U: (N, p) inputs.
            x0: (N, n) start of the iteration, zero if None.

        Raises:
            RuntimeError: within torch.func, whose tensors have no values to judge.
        """
        if self._autocast():
            return self._without_autocast(self.equilibrium, U, x0)
        if transformed():
            raise RuntimeError(
                "equilibrium() judges the residual of each sample, which transforms of torch.func do not show: call the"
                " model, or implicit_models.equilibrium.equilibrium, inside them"
            )
        self._check_samples(U, rows=True)
        if x0 is not None:
            self._check_input(x0, "x0")
            if x0.shape != (U.shape[0], self.n_states):
                raise ValueError(f"x0 must have shape {(U.shape[0], self.n_states)}, got {tuple(x0.shape)}")
        z = self._injection(U)
        result = differentiable_result(self._feedback_matrix(), z, self.activation, self.settings, self._solve(z, x0))
        self.last_solve = result.statistics
        return result

    def project_(self) -> Self:
        """Project the rows of A on the l1 ball of radius kappa, in place (and drop its lower part for "strict_upper").

        An A that is pruned, or has a parametrization with a right inverse (weight_norm), is projected through it.

        Raises:
            TypeError: for a sparse A, which is not trained, and for an A that another tensor decides and that cannot be
                written.
        """
        project_feedback_matrix(self)
        return self

    def project_after(self, optimizer: torch.optim.Optimizer) -> torch.utils.hooks.RemovableHandle:
        """Project after every step of the optimiser; `handle.remove()` ends it.

        Raises:
            ValueError: if the optimiser does not hold A, or what A is made of.
            TypeError: as `project_`.
        """
        owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        decide = [self.A] if self.A.layout is not torch.strided else deciding_parameters(self)
        if not any(id(t) in owned for t in decide):
            raise ValueError("the optimiser does not hold this model's A: build it from model.parameters()")
        return optimizer.register_step_post_hook(self._project_hook())

    def _project_hook(self) -> Callable[..., None]:
        def project(optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
            self.project_()

        return project

    def certificate(self) -> Certificate:
        """Proof that the present A is well-posed for the activation, or kind "none"."""
        return certificate(self._feedback_matrix(), self.activation)
