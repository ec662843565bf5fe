from .interconnect import add as add
from .interconnect import cascade as cascade
from .interconnect import feedback as feedback
from .interconnect import from_network as from_network
from .interconnect import multiply as multiply
from .interconnect import parallel as parallel
