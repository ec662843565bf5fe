from .convergence import NotConverged as NotConverged
from .convergence import SolveStatistics as SolveStatistics
from .convergence import equilibrium_residual as equilibrium_residual
from .implicit import equilibrium as equilibrium
from .implicit import equilibrium_result as equilibrium_result
from .result import EquilibriumResult as EquilibriumResult
from .settings import SolverSettings as SolverSettings
from .solve import solve_equilibrium as solve_equilibrium
