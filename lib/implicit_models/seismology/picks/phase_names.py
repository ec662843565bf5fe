"""Names of phases in bulletins, and the phase of the travel-time tables that each stands for."""

from __future__ import annotations

# Names under which bulletins report the first arriving P of the mantle and crust.
FIRST_P = frozenset({"P", "p", "Pn", "Pg", "Pb", "P*", "PN", "PG", "PB", "P1"})
USED = (
    dict.fromkeys(FIRST_P, "P")
    | {"S": "S", "s": "S", "S1": "S"}
    | {"Sg": "Sg", "SG": "Sg", "Sb": "Sg", "SB": "Sg", "S*": "Sg"}
    | {"Sn": "Sn", "SN": "Sn", "pP": "pP", "sP": "sP"}
)


def phase_of(name: str) -> str:
    """The phase of `table.phases` that a reported name stands for; empty for one that is not used.

    Marks of onset and polarity around a name (IP, ePn, iS, P+) are taken off.
    """
    name = name.strip().rstrip("+-_?")
    if name in USED:
        return USED[name]
    return USED.get(name[1:], "") if name[:1] in "eiEI" and len(name) > 1 and name[1:2] in "PS" else ""
