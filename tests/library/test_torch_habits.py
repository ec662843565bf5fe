"""What a PyTorch user does with any layer: seeds, devices, shapes, transforms, pruning, export.

It works, or is refused in words that say what to do."""

import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.nn.utils import parametrizations, parametrize, prune, skip_init

from implicit_models import ImplicitModel, ImplicitRNN, NotConverged
from implicit_models.equilibrium import equilibrium
from implicit_models.matrices import check_network

DOUBLE = torch.float64
ACTIVATIONS = ["relu", "tanh", [("relu", 2), ("softmax", 3)], [("tanh", 1), ("max_pool", 4)]]


def _draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def _row_norms(model):
    return model.A.detach().double().abs().sum(1)


# ---------------------------------------------------------------- seeds


@pytest.mark.parametrize("make", [lambda **k: ImplicitModel(3, 2, 5, **k), lambda **k: ImplicitRNN(1, 2, 5, **k)])
def test_manual_seed_decides_the_weights_and_a_seed_of_its_own_leaves_the_generator(make):
    def weights(global_seed, **settings):
        torch.manual_seed(global_seed)
        return [p.detach().clone() for p in make(**settings).parameters()]

    first, again, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(weights(0, seed=3), weights(1, seed=3), strict=True))
    torch.manual_seed(0)
    before = torch.get_rng_state()
    make(seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    make()
    assert not torch.equal(torch.get_rng_state(), before)  # the next layer gets other weights


def test_the_weights_of_a_seed_are_the_published_draws():
    generator = torch.Generator().manual_seed(4)
    A, B, C, D = (torch.randn(*s, generator=generator) / 60 for s in ((60, 60), (60, 3), (2, 60), (2, 3)))
    model = ImplicitModel(3, 2, 60, seed=4)
    inside = A.abs().sum(1) <= 0.95
    assert torch.equal(model.A[inside], A[inside]) and inside.any()
    assert all(torch.equal(got, want) for got, want in zip((model.B, model.C, model.D), (B, C, D), strict=True))


# ---------------------------------------------------------------- device and dtype


def test_dtype_and_default_dtype():
    wide = ImplicitModel(3, 2, 5, bias=True, seed=0, dtype=DOUBLE)
    assert {p.dtype for p in wide.parameters()} == {DOUBLE}
    torch.set_default_dtype(DOUBLE)
    try:
        assert all(
            torch.equal(a, b) for a, b in zip(wide.parameters(), ImplicitModel(3, 2, 5, bias=True, seed=0).parameters())
        )
    finally:
        torch.set_default_dtype(torch.float32)
    assert ImplicitRNN(1, 2, 3, dtype=DOUBLE).cell.A.dtype == DOUBLE
    for wrong in (torch.int64, torch.complex64, "float32"):
        with pytest.raises(TypeError, match="dtype must be a floating torch.dtype"):
            ImplicitModel(3, 2, 5, dtype=wrong)


@pytest.mark.parametrize("how", ["argument", "context"])
def test_a_model_made_on_meta_is_filled_later(how):
    trained = ImplicitModel(3, 2, 5, bias=True, seed=0)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    if how == "argument":
        model = ImplicitModel(3, 2, 5, bias=True, device="meta")
    else:
        with torch.device("meta"):
            model = ImplicitModel(3, 2, 5, bias=True, seed=1)
    assert all(p.is_meta for p in model.parameters()) and torch.equal(torch.get_rng_state(), before)
    with pytest.raises(RuntimeError, match="meta device: to_empty"):
        model(torch.zeros(1, 3))
    U = _draw(4, 3)
    model.to_empty(device="cpu").load_state_dict(trained.state_dict())
    assert torch.equal(model(U), trained(U))
    with torch.device("meta"):
        other = ImplicitModel(3, 2, 5, bias=True)
    other.load_state_dict(trained.state_dict(), assign=True)
    assert torch.equal(other(U), trained(U))


def test_skip_init_leaves_the_weights_to_the_user():
    network = skip_init(ImplicitRNN, 1, 2, 5, seed=0, dtype=DOUBLE)
    for layer in (skip_init(ImplicitModel, 3, 2, 5, seed=0), network.cell):
        assert {p.device.type for p in layer.parameters()} == {"cpu"} and layer.A.shape == (5, 5)


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize("batch", [(), (4,), (2, 3), (2, 0, 3), (2, 1, 3)])
def test_leading_dimensions_are_those_of_the_input(batch):
    model = ImplicitModel(3, 2, 5, seed=0, dtype=DOUBLE)
    U = _draw(*batch, 3, dtype=DOUBLE).requires_grad_()
    y = model(U)
    assert y.shape == nn.Linear(3, 2, dtype=DOUBLE)(U).shape == (*batch, 2)
    assert torch.equal(y.reshape(-1, 2), model(U.reshape(-1, 3)))
    y.sum().backward()
    assert U.grad.shape == U.shape


def test_shapes_that_do_not_fit_are_named():
    model = ImplicitModel(3, 2, 5, seed=0)
    with pytest.raises(ValueError, match=r"\(\*, in_features\), got \(\)"):
        model(torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"3 columns, one per input, got shape \(2, 4, 5\)"):
        model(torch.zeros(2, 4, 5))
    with pytest.raises(ValueError, match=r"\(N, in_features\), got \(2, 4, 3\)"):
        model.equilibrium(torch.zeros(2, 4, 3))


def test_a_sequence_without_a_batch():
    rnn = ImplicitRNN(2, 3, 6, seed=0)
    S, h0 = _draw(7, 2), _draw(3, seed=1)
    for given in (None, h0):
        Y, h = rnn(S, given)
        batched, last = rnn(S[None], None if given is None else given[None])
        assert Y.shape == (7, 3) and h.shape == (3,)
        assert torch.equal(Y, batched[0]) and torch.equal(h, last[0])


def test_an_initial_state_that_does_not_fit_is_named():
    rnn, S = ImplicitRNN(2, 3, 6, seed=0), _draw(4, 7, 2)
    for wrong, words in (
        (
            torch.zeros(1, 4, 3),
            r"h0 must have shape \(4, 3\), got \(1, 4, 3\) \(nn.RNN's first dimension goes: h0\[0\]\)",
        ),
        (torch.zeros(4, 2), r"h0 must have shape \(4, 3\), got \(4, 2\)"),
        (torch.zeros(3), r"h0 must have shape \(4, 3\), got \(3,\)"),
    ):
        with pytest.raises(ValueError, match=words):
            rnn(S, wrong)
    with pytest.raises(ValueError, match=r"h0 must have shape \(3,\), got \(1, 3\)"):
        rnn(S[0], torch.zeros(1, 3))
    with pytest.raises(TypeError, match="h0 is torch.float64 on cpu, but the model is torch.float32 on cpu"):
        rnn(S, torch.zeros(4, 3, dtype=DOUBLE))
    with pytest.raises(TypeError, match="h0 is torch.float32 on meta"):
        rnn(S, torch.zeros(4, 3, device="meta"))
    with pytest.raises(ValueError, match=r"S must have shape \(N, T, input_size\) or \(T, input_size\), got \(2,\)"):
        rnn(torch.zeros(2))


# ---------------------------------------------------------------- an A that is derived


def _trained(model, steps=20, lr=0.02):
    """Norms of the rows of A after each step of a training that pushes them out of the ball."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    model.project_after(optimizer)
    U, norms = _draw(32, 3), []
    for _ in range(steps):
        optimizer.zero_grad()
        (model(U) - 5).pow(2).mean().backward()
        optimizer.step()
        model(U)  # a derived A is made anew by a call
        norms.append(float(_row_norms(model).max()))
    return norms


@pytest.mark.parametrize("feedback", ["full", "strict_upper"])
def test_a_pruned_A_is_projected_and_stays_pruned(feedback):
    model = ImplicitModel(3, 2, 6, seed=0, feedback=feedback)
    prune.l1_unstructured(model, "A", amount=0.3)
    mask, before = model.A_mask.clone(), model.A_orig.detach().clone()
    assert max(_trained(model)) <= 0.95
    assert not model.A[mask == 0].any() and not torch.equal(model.A_orig, before)
    with torch.no_grad():
        model.A_orig.fill_(1.0)
    model.project_()
    assert float(_row_norms(model).max()) <= 0.95 and (model.A_orig[mask == 0] == 1).all()
    assert model.certificate()
    prune.remove(model, "A")
    assert float(model.project_().A.detach().abs().sum(1).max()) <= 0.95


def test_weight_norm_is_projected_through():
    model = parametrizations.weight_norm(ImplicitModel(3, 2, 6, seed=0), "A")
    assert max(_trained(model)) <= 0.95
    with torch.no_grad():
        model.parametrizations.A.original0.fill_(50.0)
    wanted = ImplicitModel.from_matrices(model.A, model.B, model.C, model.D).project_().A
    model.project_()
    assert float(_row_norms(model).max()) <= 0.95
    torch.testing.assert_close(model.A, wanted, rtol=1e-4, atol=1e-5)
    inside = [t.detach().clone() for t in model.parametrizations.A.parameters()]
    model.project_()
    assert all(torch.equal(a, b) for a, b in zip(inside, model.parametrizations.A.parameters(), strict=True))


class _Doubled(nn.Module):
    def forward(self, X):
        return 2 * X


class _Wrong(_Doubled):
    def right_inverse(self, Y):
        return Y


@pytest.mark.parametrize("kind", [_Doubled, _Wrong])
def test_a_parametrization_that_cannot_be_set_is_refused(kind):
    model = ImplicitModel(3, 2, 6, seed=0)
    parametrize.register_parametrization(model, "A", kind())
    with torch.no_grad():
        model.parametrizations.A.original.fill_(1.0)
    before = model.parametrizations.A.original.detach().clone()
    with pytest.raises(TypeError, match=f"parametrization {kind.__name__} of A .*leave the ball of radius 0.95"):
        model.project_()
    assert torch.equal(model.parametrizations.A.original, before)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_A_made_by_a_hook_is_refused():
    model = torch.nn.utils.weight_norm(ImplicitModel(3, 2, 6, seed=0), "A")
    for call in (model.project_, lambda: model.project_after(torch.optim.SGD(model.parameters(), lr=0.1))):
        with pytest.raises(TypeError, match="A is made anew of A_g, A_v before each call.*parametrizations"):
            call()


def test_the_optimiser_must_hold_what_A_is_made_of():
    model = ImplicitModel(3, 2, 6, seed=0)
    prune.l1_unstructured(model, "A", amount=0.3)
    with pytest.raises(ValueError, match="does not hold this model's A"):
        model.project_after(torch.optim.SGD([model.B], lr=0.1))


# ---------------------------------------------------------------- torch.func and forward mode


def _problem(n=5, N=3):
    A = _draw(n, n, dtype=DOUBLE)
    return 0.9 * A / A.abs().sum(1, keepdim=True), _draw(N, n, seed=1, dtype=DOUBLE)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_jacobians_agree_with_central_differences(activation):
    A, b = _problem()
    f = lambda A, b: equilibrium(A, b, activation, tol=1e-14)
    backward, forward = jacrev(f, (0, 1))(A, b), jacfwd(f, (0, 1))(A, b)
    step = 1e-6
    for k, point in enumerate((A, b)):
        moved = []
        for e in torch.eye(point.numel(), dtype=DOUBLE).reshape(-1, *point.shape):
            ends = [f(*(t + sign * step * e if i == k else t for i, t in enumerate((A, b)))) for sign in (1, -1)]
            moved.append((ends[0] - ends[1]) / (2 * step))
        wanted = torch.stack(moved, -1).reshape(*b.shape, *point.shape)
        for found in (backward[k], forward[k]):
            torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradcheck_in_both_modes_and_a_second_derivative_is_refused(activation):
    A, b = (t.requires_grad_() for t in _problem())
    f = lambda A, b: equilibrium(A, b, activation, tol=1e-14)
    assert torch.autograd.gradcheck(f, (A, b), check_forward_ad=True, check_undefined_grad=True)
    with pytest.raises(RuntimeError, match="differentiable once"):
        torch.autograd.gradgradcheck(f, (A, b))
    unrolled = lambda A, b: equilibrium(A, b, activation, tol=1e-14, backward="unroll")
    assert torch.autograd.gradgradcheck(unrolled, (A, b))


@pytest.mark.parametrize("activation", ["tanh", [("relu", 2), ("softmax", 3)]])
@pytest.mark.parametrize("solver", ["auto", "picard", "anderson"])
def test_vmap_over_samples_over_matrices_and_over_both(activation, solver):
    A, b = _problem()
    many_A, many_b = torch.stack([A, 0.5 * A, A.triu(1)]), torch.stack([b, 2 * b, -b])
    f = lambda A, b: equilibrium(A, b, activation, solver=solver, tol=1e-12)
    loss = lambda A, b: f(A, b).pow(3).sum()
    for dims in ((None, 0), (0, None), (0, 0)):
        pairs = [(A if dims[0] is None else many_A[i], b if dims[1] is None else many_b[i]) for i in range(3)]
        given = A if dims[0] is None else many_A, b if dims[1] is None else many_b
        torch.testing.assert_close(vmap(f, dims)(*given), torch.stack([f(*pair) for pair in pairs]), rtol=0, atol=1e-10)
        found = vmap(grad(loss, (0, 1)), dims)(*given)
        for i, pair in enumerate(pairs):
            leaves = [t.clone().requires_grad_() for t in pair]
            for got, want in zip(found, torch.autograd.grad(loss(*leaves), leaves), strict=True):
                torch.testing.assert_close(got[i], want, rtol=0, atol=1e-9)
    moved = vmap(f, (None, 2), out_dims=1)(A, many_b.permute(1, 2, 0))
    torch.testing.assert_close(moved, vmap(f, (None, 0))(A, many_b).transpose(0, 1), rtol=0, atol=1e-10)


@pytest.mark.parametrize("bias", [True, False])
def test_gradient_of_every_sample(bias):
    model = ImplicitModel(3, 2, 6, seed=0, bias=bias, tol=1e-12, dtype=DOUBLE)
    U, Y = _draw(5, 3, dtype=DOUBLE), _draw(5, 2, seed=1, dtype=DOUBLE)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    loss = lambda parameters, u, y: (functional_call(model, parameters, (u,)) - y).pow(2).sum()
    found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, U, Y)
    for i in range(5):
        model.zero_grad()
        (model(U[i]) - Y[i]).pow(2).sum().backward()
        for name, p in model.named_parameters():
            torch.testing.assert_close(found[name][i], p.grad, rtol=1e-8, atol=1e-9)
    assert model.last_solve.n_failed == 0


def test_an_ensemble_of_models():
    models = [ImplicitModel(3, 2, 6, seed=s, tol=1e-12, dtype=DOUBLE) for s in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    U = _draw(5, 3, dtype=DOUBLE)
    found = vmap(lambda p, b: functional_call(models[0], (p, b), (U,)))(parameters, buffers)
    assert models[0].last_solve.n_iter.shape == (15,)
    torch.testing.assert_close(found, torch.stack([m(U) for m in models]), rtol=0, atol=1e-10)


def test_recurrent_networks_in_transforms():
    rnn = ImplicitRNN(2, 3, 5, seed=0, tol=1e-13, dtype=DOUBLE)
    S = _draw(4, 6, 2, dtype=DOUBLE)
    torch.testing.assert_close(vmap(lambda s: rnn(s)[0])(S), rnn(S)[0], rtol=0, atol=1e-10)
    last = lambda s: rnn(s)[1]
    backward, forward = jacrev(last)(S[0]), jacfwd(last)(S[0])
    torch.testing.assert_close(backward, torch.autograd.functional.jacobian(last, S[0]), rtol=0, atol=1e-9)
    torch.testing.assert_close(forward, backward, rtol=0, atol=1e-9)


def test_hessians_by_reverse_over_forward_and_the_other_orders_refused():
    A, b = _problem()
    loss = lambda b: equilibrium(A, b, "tanh", tol=1e-14).pow(3).sum()
    unrolled = lambda b: equilibrium(A, b, "tanh", tol=1e-14, backward="unroll").pow(3).sum()
    wanted = torch.autograd.functional.hessian(unrolled, b)
    torch.testing.assert_close(jacrev(jacfwd(loss))(b), wanted, rtol=1e-9, atol=1e-9)
    for order in (hessian, lambda f: jacrev(jacrev(f))):
        with pytest.raises(RuntimeError, match=r"differentiable once.*jacrev\(torch.func.jacfwd"):
            order(loss)(b)
    with pytest.raises(RuntimeError, match="no forward over forward mode"):
        jacfwd(jacfwd(loss))(b)


def test_tangents_of_sparse_matrices_and_of_samples_that_are_not_finite():
    A, b = _problem()
    tangent = _draw(*b.shape, seed=2, dtype=DOUBLE)
    f = lambda M: lambda b: equilibrium(M, b, "tanh", tol=1e-14, on_failure="ignore")
    wanted = jvp(f(A), (b,), (tangent,))[1]
    torch.testing.assert_close(jvp(f(A.to_sparse_csr()), (b,), (tangent,))[1], wanted, rtol=0, atol=1e-12)
    b[1, 0] = float("nan")
    found = jvp(f(A), (b,), (tangent,))[1]
    assert found[1].isnan().all()
    torch.testing.assert_close(found[[0, 2]], wanted[[0, 2]], rtol=0, atol=1e-12)


def test_what_transforms_cannot_do_is_refused():
    A, b = _problem()
    with pytest.raises(RuntimeError, match="vmap cannot know: use backward='implicit'"):
        vmap(lambda b: equilibrium(A, b, backward="unroll"))(b[:, None])
    model = ImplicitModel(3, 2, 5, seed=0)
    with pytest.raises(RuntimeError, match="call the model, or implicit_models.equilibrium.equilibrium"):
        vmap(lambda u: model.equilibrium(u).x)(torch.zeros(4, 1, 3))
    sparse = ImplicitModel.from_matrices(*(M.detach().to_sparse_csr() for M in (model.A, model.B, model.C)))
    with pytest.raises(
        RuntimeError, match=r"do not carry sparse matrices: make the model from dense ones, M.to_dense\(\)"
    ):
        vmap(sparse)(torch.zeros(4, 1, 3))
    with pytest.raises(RuntimeError, match="one cotangent a call.*torch.func.jacrev"):
        torch.autograd.functional.jacobian(lambda b: equilibrium(A, b), b, vectorize=True)


# ---------------------------------------------------------------- export


def _says(error):
    """Messages of an exception and of those it came from."""
    text = ""
    while error is not None:
        text, error = f"{text}\n{error}", error.__cause__ or error.__context__
    return text


@pytest.mark.parametrize("make", [lambda: ImplicitModel(3, 2, 5, seed=0), lambda: ImplicitRNN(3, 2, 5, seed=0)])
@pytest.mark.parametrize("how", ["trace", "script", "export", "strict export", "onnx"])
@pytest.mark.filterwarnings("ignore")
def test_recording_is_refused_in_words(make, how):
    model = make()
    U = torch.zeros(1, 4, 3) if isinstance(model, ImplicitRNN) else torch.zeros(4, 3)
    record = {
        "trace": lambda m: torch.jit.trace(m, U),
        "script": torch.jit.script,
        "export": lambda m: torch.export.export(m, (U,), strict=False),
        "strict export": lambda m: torch.export.export(m, (U,), strict=True),
        "onnx": lambda m: torch.onnx.export(m, (U,), io.BytesIO(), dynamo=False),
    }[how]
    for network in (model, nn.Sequential(model)):
        with pytest.raises(Exception) as failure:
            record(network)
        assert "cannot record an implicit model: the number of its iterations depends on the data" in _says(
            failure.value
        )
        assert "model.state_dict()" in _says(failure.value)


# ---------------------------------------------------------------- precision, and weights that are not finite


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_solved_as_it_is_and_says_what_it_resolves(half):
    model = ImplicitModel(3, 2, 8, seed=0, tol=1e-2)
    U = _draw(6, 3)
    y = model(U)
    narrow = ImplicitModel(3, 2, 8, seed=0, tol=2e-2).to(half)
    assert narrow(U.to(half)).dtype == half and narrow.last_solve.converged.all()
    torch.testing.assert_close(narrow(U.to(half)).float(), y, rtol=0.1, atol=0.02)
    with pytest.raises(TypeError, match=f"U is {half} on cpu, but the model is torch.float32"):
        model(U.to(half))
    with pytest.raises(TypeError, match=f"U is torch.float32 on cpu, but the model is {half}"):
        narrow(U)
    strict = ImplicitModel(3, 2, 8, seed=0, dtype=half)
    with pytest.warns(NotConverged, match=f"below what {str(half)[6:]} resolves"):
        strict(U.to(half))


def test_autocast_casts_to_the_parameters():
    model, U = ImplicitModel(3, 2, 8, seed=0), _draw(6, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(model(U), model(U.float())) and model(U.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("name", ["A", "B", "C", "D", "b", "d"])
@pytest.mark.parametrize("backward", ["implicit", "unroll"])
@pytest.mark.parametrize("kind", ["model", "rnn", "rnn without a batch"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_named(name, backward, kind, value):
    settings = {"bias": True, "seed": 0, "backward": backward}
    model = ImplicitModel(3, 2, 5, **settings) if kind == "model" else ImplicitRNN(3, 2, 5, **settings)
    with torch.no_grad():
        getattr(model if kind == "model" else model.cell, name).view(-1)[-1] = value
    U = _draw(4, 3) if kind != "rnn" else _draw(2, 4, 3)
    with pytest.raises(ValueError, match=f"^{name} has values that are not finite: 1 of"):
        model(U)


def test_a_network_is_checked_before_its_weights_are_read():
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.BatchNorm1d(4))
    check_network(network)
    check_network(network.double())
    for half, name in ((torch.float16, "float16"), (torch.bfloat16, "bfloat16")):
        with pytest.raises(TypeError, match=rf"^0.weight is torch.{name}: half precision .*network.float\(\)"):
            check_network(network.to(half))
    network.float()[2].double()
    with pytest.raises(TypeError, match="^2.weight is torch.float64, but 0.weight is torch.float32"):
        check_network(network)
    network.float()[2].running_var[1:3] = float("inf")
    with pytest.raises(ValueError, match="^2.running_var has values that are not finite: 2 of 4"):
        check_network(network)


def test_an_input_that_is_not_finite_is_no_fault_of_the_weights():
    model = ImplicitModel(3, 2, 5, seed=0)
    U = _draw(4, 3)
    U[1, 0] = float("nan")
    with pytest.warns(NotConverged, match="input of these samples holds NaN"):
        y = model(U)
    np.testing.assert_array_equal(y.isnan().any(1), [False, True, False, False])


COMPILED = """
import torch
from torch import nn
from implicit_models import ImplicitModel, ImplicitRNN

network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), ImplicitModel(4, 2, 5, seed=0), nn.Linear(2, 1))
rnn, U, S = ImplicitRNN(3, 2, 5, seed=0), torch.randn(4, 3), torch.randn(2, 6, 3)
compiled = torch.compile(network, backend="eager")
assert torch.equal(compiled(U), network(U))
assert torch.equal(torch.compile(rnn, backend="eager")(S)[0], rnn(S)[0])
compiled(U).sum().backward()
found = network[2].A.grad.clone()
network.zero_grad()
network(U).sum().backward()
assert torch.equal(found, network[2].A.grad) and found.any()
print("the same")
"""


def test_compile_goes_around_the_solver():
    # a process of its own: checks of signatures, where tests install them, are no code for torch.compile
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPILED], capture_output=True, text=True, check=False
    )
    assert found.stdout == "the same\n", found.stderr
