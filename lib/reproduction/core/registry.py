"""Every architecture that the papers print, built and counted beside the printed parameter count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from implicit_models.model import ImplicitModel
from reproduction.core.scores import count_parameters
from reproduction.models.mlp import MLP
from reproduction.models.nalu import NALU
from reproduction.models.transformer import DepthwiseEncoder, EncoderDecoder, SequentialEncoder

REPORT, WORKSHOP, EXTRAPOLATION, THESIS = (
    "Ganesh (2023)",
    "workshop paper (2022)",
    "Decugis et al. (2024)",
    "Tsai thesis (2024)",
)
SOURCES = {
    "report": f"{REPORT}, Table 1; {WORKSHOP}, section 3",
    "report only": f"{REPORT}, Table 1",
    "extrapolation": f"{EXTRAPOLATION}, Table 4",
    "text": f"{EXTRAPOLATION}, section 3.1; {THESIS}, section 5.3",
}


@dataclass(frozen=True)
class Architecture:
    """A printed architecture.

    Args:
        task: identity, arithmetic, rolling average, rolling argmax, spiky, volatility, earthquake.
        model: kind of model.
        described: the architecture as printed.
        source: where.
        published: printed parameter count, None where the papers print none.
        build: the architecture as described.
        note: what is wrong with the printed count, or "".
        explanation: an architecture that has the printed count, where the described one has not.
    """

    task: str
    model: str
    described: str
    source: str
    published: int | None
    build: Callable[[], nn.Module] | None
    note: str = ""
    explanation: Callable[[], nn.Module] | None = None

    @property
    def counted(self) -> int | None:
        """Parameters of the architecture as described, None where it cannot be built."""
        return None if self.build is None else count_parameters(self.build())

    @property
    def explained(self) -> int | None:
        """Parameters of the explanation, None without one."""
        return None if self.explanation is None else count_parameters(self.explanation())

    @property
    def right(self) -> bool | None:
        """Whether the printed count is the counted one, None where no count is printed."""
        return None if self.published is None else self.published == self.counted


def _implicit(n: int, p: int, q: int) -> Callable[[], nn.Module]:
    return lambda: ImplicitModel(p, q, n, seed=0)


def _implicit_rnn(n: int, hidden: int, out: int) -> Callable[[], nn.Module]:
    """Cell with input (s_t, h_{t-1}) of width 1 + hidden, and a linear head with a bias."""
    return lambda: nn.ModuleList([ImplicitModel(1 + hidden, hidden, n, seed=0), nn.Linear(hidden, out)])


def _lstm(hidden: int, out: int) -> Callable[[], nn.Module]:
    return lambda: nn.ModuleList([nn.LSTM(1, hidden), nn.Linear(hidden, out)])


def _mlp(*sizes: int) -> Callable[[], nn.Module]:
    return lambda: MLP(sizes)


def _spiky_transformer() -> nn.Module:
    return nn.ModuleList([nn.Linear(1, 10), DepthwiseEncoder(10), nn.Linear(10, 1)])


ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("identity", "MLP", "10-10-10", SOURCES["report"], 220, _mlp(10, 10, 10)),
    Architecture("identity", "MLP", "10-9-9-10", SOURCES["extrapolation"], None, _mlp(10, 9, 9, 10)),
    Architecture("identity", "implicit", "n = 4, p = q = 10", SOURCES["report"], 196, _implicit(4, 10, 10)),
    Architecture(
        "identity",
        "encoder",
        "one layer, one head",
        SOURCES["report"],
        43_498,
        lambda: DepthwiseEncoder(10),
        "d_model 10 with PyTorch's default feed-forward width 2048; called the smallest possible encoder, but a "
        "width of 10 has 700",
    ),
    Architecture(
        "identity",
        "encoder-decoder",
        "10-10-5, 5 heads",
        SOURCES["extrapolation"],
        None,
        lambda: EncoderDecoder(10, 5, width=10),
        "feed-forward width not printed: 10 is assumed",
    ),
    Architecture(
        "arithmetic",
        "MLP",
        "50-10-10-1",
        SOURCES["report only"],
        1497,
        _mlp(50, 10, 10, 1),
        "1,497 is 50-17-17-17-1",
        _mlp(50, 17, 17, 17, 1),
    ),
    Architecture(
        "arithmetic",
        "NALU",
        "50-10-10-1",
        SOURCES["report only"],
        1530,
        lambda: NALU((50, 10, 10, 1)),
        "1,530 is 50-10-1",
        lambda: NALU((50, 10, 1)),
    ),
    Architecture(
        "arithmetic",
        "implicit",
        "n = 20, p = 50, q = 1",
        SOURCES["text"],
        7650,
        _implicit(20, 50, 1),
        "7,650 is n = 50, p = 100, q = 1: the setting of Table 5.2",
        _implicit(50, 100, 1),
    ),
    Architecture(
        "arithmetic",
        "sequential encoder",
        "one layer, 10 heads",
        SOURCES["report only"],
        6208,
        None,
        "6,208 is d_model 1, width 2048 and a 50-1 head; ten heads cannot divide d_model = 1, and layer "
        "normalisation of one feature makes the output the same for every input",
        lambda: SequentialEncoder(50),
    ),
    Architecture(
        "arithmetic",
        "sequential encoder",
        "one layer, 10 heads, width 50",
        SOURCES["extrapolation"],
        None,
        None,
        "ten heads cannot divide d_model = 1",
    ),
    Architecture(
        "arithmetic",
        "depth-wise encoder",
        "one layer, one head",
        SOURCES["report only"],
        217_349,
        lambda: DepthwiseEncoder(50, 1),
        "d_model 50, width 2048 and a 50-1 head",
    ),
    Architecture(
        "arithmetic",
        "depth-wise encoder",
        "one layer, one head, width 500",
        SOURCES["extrapolation"],
        None,
        lambda: DepthwiseEncoder(50, 1, width=500),
        "another model than the report's under the same figures",
    ),
    Architecture(
        "rolling average",
        "LSTM",
        "1-100-100-1",
        SOURCES["report"],
        42_210,
        _lstm(100, 1),
        "42,210 has a 100-10 head",
        _lstm(100, 10),
    ),
    Architecture("rolling average", "LSTM", "1-18-18-1", SOURCES["extrapolation"], None, _lstm(18, 1)),
    Architecture(
        "rolling average", "implicit", "n = 200, p = q = 10", SOURCES["report"], 44_100, _implicit(200, 10, 10)
    ),
    Architecture(
        "rolling average", "implicit", "n = 32, p = q = 10", SOURCES["extrapolation"], None, _implicit(32, 10, 10)
    ),
    Architecture(
        "rolling average",
        "encoder",
        "one layer, 2 heads",
        SOURCES["report"],
        42_210,
        None,
        "the LSTM's count again; no one-layer encoder of usual sizes has it",
    ),
    Architecture("rolling argmax", "LSTM", "1-19-19-10", SOURCES["report"], 1872, _lstm(19, 10)),
    Architecture("rolling argmax", "LSTM", "1-21-21-10", SOURCES["extrapolation"], None, _lstm(21, 10)),
    Architecture("rolling argmax", "implicit", "n = 33, p = q = 10", SOURCES["report"], 1849, _implicit(33, 10, 10)),
    Architecture(
        "rolling argmax", "implicit", "n = 36, p = q = 10", SOURCES["extrapolation"], None, _implicit(36, 10, 10)
    ),
    Architecture(
        "rolling argmax",
        "implicitRNN",
        "n = 18, p = 23, q = 22, head 22-10",
        SOURCES["report"],
        1870,
        _implicit_rnn(18, 22, 10),
    ),
    Architecture(
        "rolling argmax",
        "implicitRNN",
        "n = 21, p = 23, q = 22, head 22-10",
        SOURCES["extrapolation"],
        None,
        _implicit_rnn(21, 22, 10),
    ),
    Architecture(
        "rolling argmax",
        "decoder",
        "one layer, 2 heads",
        SOURCES["report"],
        1920,
        lambda: EncoderDecoder(10, 2, width=10, expand=1),
        "d_model 10, width 10, encoder and decoder with final norms, 1-10 linear map: not a decoder alone",
    ),
    Architecture("spiky", "LSTM", "1-20-20-1", SOURCES["report"], 1861, _lstm(20, 1)),
    Architecture(
        "spiky", "implicitRNN", "n = 20, p = 21, q = 20, head 20-1", SOURCES["report"], 1661, _implicit_rnn(20, 20, 1)
    ),
    Architecture(
        "spiky",
        "masked decoder",
        "one layer, 10 heads (2 in the extrapolation paper)",
        SOURCES["report"],
        43_529,
        _spiky_transformer,
        "43,498 and two linear maps, 1-10 and 10-1; the number of heads does not change the count",
    ),
    Architecture("volatility", "LSTM", "1-38-38-1", SOURCES["extrapolation"], None, _lstm(38, 1)),
    Architecture(
        "volatility", "implicit", "n = 53, p = 60, q = 1", SOURCES["extrapolation"], None, _implicit(53, 60, 1)
    ),
    Architecture(
        "volatility",
        "implicitRNN",
        "n = 37, p = 41, q = 40, head 40-1",
        SOURCES["extrapolation"],
        None,
        _implicit_rnn(37, 40, 1),
    ),
    Architecture(
        "volatility", "MLP", "60-50-27-27-27-10-1", SOURCES["extrapolation"], None, _mlp(60, 50, 27, 27, 27, 10, 1)
    ),
    Architecture(
        "earthquake",
        "EikoNet",
        "270-32-128-128-128-32-4",
        f"{SOURCES['report only']}; {SOURCES['extrapolation']}",
        42_500,
        _mlp(270, 32, 128, 128, 128, 32, 4),
        "42,500 has 30 inputs",
        _mlp(30, 32, 128, 128, 128, 32, 4),
    ),
    Architecture(
        "earthquake",
        "implicit",
        "n = 190, p = 270, q = 4",
        f"{SOURCES['report only']}; {SOURCES['extrapolation']}",
        42_680,
        _implicit(190, 270, 4),
        "42,680 has 30 inputs",
        _implicit(190, 30, 4),
    ),
)
