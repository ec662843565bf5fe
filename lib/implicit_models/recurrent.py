"""Recurrent network with an implicit cell. Conventions: `implicit_models.layers`."""

from __future__ import annotations

from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from implicit_models.equilibrium.convergence import SolveStatistics
from implicit_models.equilibrium.recurrence import recurrence, supports
from implicit_models.matrices import product
from implicit_models.model import ImplicitModel, checked_size, uncompiled
from implicit_models.projection import transformed


class ImplicitRNN(nn.Module):
    """Recurrent network whose cell is an implicit model.

    Mathematics: u_t = [s_t, h_{t-1}], x_t = phi(A x_t + B u_t + b), h_t = C x_t + D u_t + d, h_0 = 0. B is (n, input +
    hidden), C (hidden, n), D (hidden, input + hidden); the input's columns come first.

    The matrices, the settings, `project_`, `project_after`, `certificate` and `last_solve` are those of `cell`, an
    `ImplicitModel` with input + hidden inputs and hidden outputs: `rnn.cell.project_after(optimizer)` keeps A in its
    ball during training.

    Sequences are (N, T, input) as for `nn.RNN(batch_first=True)`, or (T, input) without a batch. The hidden state is
    (N, hidden), or (hidden,), as for `nn.RNNCell`: there is one layer and one direction, so that the first dimension of
    `nn.RNN`'s (1, N, hidden) would say nothing (h[None] and h0[0] go from one to the other).

    Args:
        input_size, hidden_size, n_states: p, h, n.
        device, dtype, settings: of the cell, as for `ImplicitModel`.

    Source:
        Decugis et al. (2024), section 2.1 (implicitRNN); Tsai (2024), section 5.1, Figure 5.1.
    """

    cell: ImplicitModel

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        n_states: int,
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ):
        super().__init__()
        p, h = checked_size("input_size", input_size), checked_size("hidden_size", hidden_size)
        self.cell = ImplicitModel(p + h, h, n_states, device=device, dtype=dtype, **settings)

    @classmethod
    def from_cell(cls, cell: ImplicitModel) -> Self:
        """The network of a cell that reads input and hidden state.

        Raises:
            TypeError: for anything but an `ImplicitModel`.
            ValueError: when no input is left beside the hidden state.
        """
        if not isinstance(cell, ImplicitModel):
            raise TypeError(f"a cell is an ImplicitModel, got {type(cell).__name__}")
        if cell.in_features <= cell.out_features:
            raise ValueError(
                f"the cell of an ImplicitRNN reads input and hidden state: B has {cell.in_features} columns, but C has"
                f" {cell.out_features} rows"
            )
        network = cls.__new__(cls)
        nn.Module.__init__(network)
        network.cell = cell
        return network

    @property
    def hidden_size(self) -> int:
        return self.cell.out_features

    @property
    def input_size(self) -> int:
        return self.cell.in_features - self.cell.out_features

    def __prepare_scriptable__(self) -> None:  # the hook of torch.jit.script
        self.cell.__prepare_scriptable__()

    def _fuses(self) -> bool:
        """Whether the whole sequence runs in one compiled call (`equilibrium.recurrence`)."""
        if transformed():
            return False
        cell = self.cell
        matrices = (cell.B, cell.C, *(() if cell.D is None else (cell.D,)))
        return supports(cell.A, cell.activation, cell.settings) and all(M.layout is torch.strided for M in matrices)

    def forward(
        self, S: Float[Tensor, "*N T p"], h0: Float[Tensor, "*N h"] | None = None
    ) -> tuple[Float[Tensor, "*N T h"], Float[Tensor, "*N h"]]:
        """Hidden states of every step, and the last one.

        On the CPU, with dense matrices, up to 256 states and implicit differentiation, the whole sequence is one
        compiled call, forward and exactly backward through time; otherwise a loop over the steps. In the loop a sample
        that is not finite makes the gradients of B, C and D of its whole batch not finite; in the compiled call it does
        not.

        Args:
            S: (N, T, p) sequences, or (T, p) for one.
            h0: (N, hidden) or, for one sequence, (hidden,); zero if None.

        Returns:
            Y (N, T, hidden), h (N, hidden), or (T, hidden) and (hidden,). The cell's `last_solve` joins the
            steps: iterations summed, worst residual.
        """
        if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
            return uncompiled(self.forward, S, h0)
        cell, p = self.cell, self.input_size
        if cell._autocast():
            return cell._without_autocast(self.forward, S, h0)
        cell._check_input(S, "S")
        if S.ndim not in (2, 3):
            raise ValueError(f"S must have shape (N, T, input_size) or (T, input_size), got {tuple(S.shape)}")
        if S.shape[-1] != p:
            raise ValueError(f"S must have {p} inputs per step, got shape {tuple(S.shape)}")
        if h0 is not None:
            cell._check_input(h0, "h0")
            wanted = (*S.shape[:-2], self.hidden_size)
            if h0.shape != wanted:
                torch_rnn = " (nn.RNN's first dimension goes: h0[0])" if h0.shape == (1, *wanted) else ""
                raise ValueError(f"h0 must have shape {wanted}, got {tuple(h0.shape)}{torch_rnn}")
        if S.ndim == 2:
            Y, h = self.forward(S[None], None if h0 is None else h0[None])
            return Y[0], h[0]
        N, T = S.shape[:2]
        if N and T and self._fuses():
            A = cell._feedback_matrix()
            Y, found = recurrence(A, cell.B, cell.C, cell.D, cell.b, cell.d, S, h0, cell.activation, cell.settings)
            cell.last_solve = SolveStatistics(found.n_iter, found.residual, found.status, found.method)
            return Y, Y[:, -1]
        h = S.new_zeros(N, self.hidden_size) if h0 is None else h0
        dense = cell.B.layout is torch.strided and (cell.D is None or cell.D.layout is torch.strided)
        outputs: list[Tensor] = []
        steps: list[Any] = []
        if dense:  # the input's share of every step in one product
            flat = S.reshape(N * T, p)
            z_in = product(flat, cell.B[:, :p], cell.b).reshape(N, T, cell.n_states)
            y_in = None if cell.D is None else product(flat, cell.D[:, :p]).reshape(N, T, self.hidden_size)
            Bh, Dh = cell.B[:, p:].t(), None if cell.D is None else cell.D[:, p:].t()
        for t in range(T):
            if dense:
                z = torch.addmm(z_in[:, t], h, Bh)
                x = cell._solve(z).x
                h = (
                    product(x, cell.C, cell.d)
                    if y_in is None or Dh is None
                    else torch.addmm(y_in[:, t], h, Dh) + product(x, cell.C, cell.d)
                )
            else:
                u = torch.cat([S[:, t], h], dim=1)
                h = cell._read_out(cell._solve(cell._injection(u)).x, u)
            cell._check_output(h)
            outputs.append(h)
            steps.append(cell.last_solve)
        if steps:
            cell.last_solve = SolveStatistics(
                torch.stack([s.n_iter for s in steps]).sum(0),
                torch.stack([s.residual for s in steps]).amax(0),
                torch.stack([s.status for s in steps]).amax(0),
                steps[-1].solver,
            )
        return (torch.stack(outputs, dim=1) if outputs else S.new_zeros(N, 0, self.hidden_size)), h
