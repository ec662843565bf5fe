"""What is known of a run of chunks: its solver, its workers, its times, and what was lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from implicit_models.sim.parallel.chunk_store import Chunk, Result
from implicit_models.summaries import summary

Solver = Callable[[Mapping[str, np.ndarray], Chunk], Result]


class WorkerLost(RuntimeError):
    """Workers died so often that the work cannot be finished."""


@dataclass
class RunReport:
    """How a run went. start_s: until the workers answered; work_s: from there to the last result.

    n_chunks: in all; n_loaded: found finished; n_solved: by this run; n_restarts: pools started again after a death.
    bytes_shared: of the arrays, as handed to workers (once); bytes_returned: of the results that came from other
        processes.
    """

    backend: str
    workers: int
    start_s: float = 0.0
    work_s: float = 0.0
    n_chunks: int = 0
    n_loaded: int = 0
    n_solved: int = 0
    n_restarts: int = 0
    bytes_shared: int = 0
    bytes_returned: int = 0
    solved: list[Chunk] = field(default_factory=list)

    def __repr__(self) -> str:
        return summary(self)
