"""What the notebook of the attacked Fashion-MNIST models records of other teachers and other numbers of images."""

from __future__ import annotations

import dataclasses
from typing import Any

from reproduction.ch3_sim_fashion import compute, teachers
from reproduction.ch3_sim_fashion.measures import ATTACKS, Case, table_fits, teacher_scores
from reproduction.classifiers import fashion
from reproduction.core.budgets import training_budget
from reproduction.core.scores import accuracy_of

COUNTS = {"quick": (100, 500), "full": (100, 500, 2_000, 10_000)}  # images of the curves
FITTED = ("clean", "agree", "sparsity")


def sample_values(case: Case) -> dict[str, Any]:
    """`samples_METHOD_COUNT_QUANTITY` of `teachers.sample_curves` in per cent, one a seed, and `samples_METHOD_rise`,
    accuracy with the most images less that with the fewest."""
    counts = COUNTS[case.profile]
    each = [
        teachers.sample_curves(n, case.images, counts, seed, case.attacked)
        for n, seed in zip(case.networks, case.seeds, strict=True)
    ]
    values: dict[str, Any] = {}
    for name in teachers.METHODS:
        for place, m in enumerate(counts):
            for key in FITTED:
                values[f"samples_{name}_{m}_{key}"] = [one[name][place][key] for one in each], "%"
        values[f"samples_{name}_rise"] = [one[name][-1]["clean"] - one[name][0]["clean"] for one in each], "points"
    return values


def implicit_values(case: Case) -> dict[str, Any]:
    """The implicit classifier as the teacher: `implicit_teacher_clean`, and `implicit_COUNT_QUANTITY` of fits to its
    equilibria on the two largest numbers of images of the curves up to 2,000."""
    runs = [fashion.trained(case.images, seed, case.profile)["implicit"] for seed in case.seeds]
    u, labels = (part[: case.attacked] for part in case.images.test[0])
    values: dict[str, Any] = {
        "implicit_teacher_clean": ([100 * accuracy_of(network.eval(), u, labels) for network, _ in runs], "%")
    }
    for m in [m for m in COUNTS[case.profile] if m <= 2_000][-2:]:
        found = [
            teachers.fit_scores(network, case.images, m, seed, case.attacked)
            for (network, _), seed in zip(runs, case.seeds, strict=True)
        ]
        values |= {f"implicit_{m}_{key}": ([one[key] for one in found], "%") for key in FITTED}
    recipe = fashion.models(0, case.profile)["implicit"][1]
    return values | training_budget("implicit", recipe, [history for _, history in runs], len(case.images.y_train))


def stated_values(case: Case) -> dict[str, Any]:
    """Tables 2 and 3 with teachers of the stated accuracy: `stated_teacher_ACCURACY` and
    `stated_TABLE_nSAMPLES_QUANTITY`, one a seed, and `trained_epochs_stated`, `trained_updates_stated`."""
    found = [teachers.stated_teacher(case.images, seed) for seed in case.seeds]
    other = dataclasses.replace(case, networks=[network for network, _, _ in found])
    scores = teacher_scores(other)
    values: dict[str, Any] = {
        f"stated_teacher_{key}": ([one[key] for one in scores], "%") for key in ("clean", *ATTACKS)
    }
    for (table, m), point in table_fits(other).items():
        for key in ("sparsity", "clean", *ATTACKS):
            values[f"stated_{table}_n{m}_{key}"] = point[key], "%"
    histories = [history for _, _, history in found]
    return values | training_budget("stated", found[0][1], histories, len(case.images.y_train))


def sample_table(profile: str) -> dict[str, Any]:
    """The fits at every number of images, as arguments of `Results.rows`."""
    names = {"literal": "uniform scale, as printed", "repaired": "Theorem 2.4, earlier layers only"}
    return {
        "parts": {f"{words}, {m} images": f"{name}_{m}" for name, words in names.items() for m in COUNTS[profile]},
        "columns": {
            "accuracy, %": "samples_{}_clean",
            "agreement with the network, %": "samples_{}_agree",
            "sparsity, %": "samples_{}_sparsity",
        },
    }


def stated_table(profile: str) -> dict[str, Any]:
    """Tables 2 and 3 with the stated teacher, as arguments of `Results.rows`."""
    sizes = {table: compute.PROFILES[profile][f"table_{table[1]}"] for table in ("t2", "t3")}
    return {
        "parts": {f"Table {table[1]}, {m} samples": f"{table}_n{m}" for table in sizes for m in sizes[table]},
        "columns": {
            "sparsity, %": "stated_{}_sparsity",
            "accuracy, %": "stated_{}_clean",
            "at .004": "stated_{}_at_0.004",
            "at .008": "stated_{}_at_0.008",
        },
    }
