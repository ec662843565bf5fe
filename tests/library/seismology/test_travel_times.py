"""The table of P travel times: closed forms of rays, TauPy, the near-source chord, derivatives, shadow and cache."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_models.seismology.table import ray_branches
from implicit_models.seismology.table.travel_times import build_p_table

pytest.importorskip("obspy", reason="travel times need obspy's Earth models")

R = 6371.0


@pytest.fixture(scope="module")
def table():
    return build_p_table(shadow="diffracted", cache=False, progress=False)


@pytest.fixture(scope="module")
def taupy():
    from obspy.taup import TauPyModel

    model = TauPyModel("ak135")

    def first(depth, dist):
        return min(model.get_travel_times(depth, dist, ["p", "P", "Pdiff"]), key=lambda arrival: arrival.time)

    return first


def chord(depth, dist_deg):
    r = R - depth
    return np.sqrt(R * R + r * r - 2 * R * r * np.cos(np.radians(dist_deg)))


def uniform_layers(exponent, bottom=3000.0, count=40):
    """v = 5.8 (r/R)^B: one power law cut into layers."""
    radii = np.linspace(R, bottom, count + 1)
    u = radii / (5.8 * (radii / R) ** exponent)
    return ray_branches.layered(R, radii[:-1], radii[1:], u[:-1], u[1:])


@pytest.mark.parametrize("depth", [0.0, 0.3, 7.0, 150.0, 690.0])
def test_constant_velocity_gives_chords(depth):
    grid = np.radians(np.arange(0, 80, 0.25))
    found = ray_branches.branch_times(uniform_layers(0.0), depth, grid, above=False)
    assert found.reached.all() and len(found.T) == 1
    wanted = chord(depth, np.degrees(grid)) / 5.8
    np.testing.assert_allclose(found.T[0], wanted, atol=2e-5)
    r, X = R - depth, chord(depth, np.degrees(grid))
    if depth:
        np.testing.assert_allclose(found.P[0], R * r * np.sin(grid) / X / 5.8, atol=5e-3)
        # dT/dz of a chord: the cosine between the ray and the vertical.
        np.testing.assert_allclose(found.Z[0], (R * np.cos(grid) - r) / X / 5.8, atol=2e-4)


def test_power_law_in_closed_form():
    """Delta = 2c arccos(p/u), T = 2c sqrt(u^2 - p^2): T = 2 c u sin(Delta / 2c) for a source on the surface."""
    exponent, grid = -0.6, np.radians(np.arange(0, 80, 0.5))
    c, u = 1 / (1 - exponent), R / 5.8
    found = ray_branches.branch_times(uniform_layers(exponent), 0.0, grid, above=False)
    np.testing.assert_allclose(found.T[0], 2 * c * u * np.sin(grid / (2 * c)), atol=2e-5)
    np.testing.assert_allclose(found.P[0], u * np.cos(grid / (2 * c)), atol=0.02)


def test_head_wave_over_a_discontinuity():
    """Two nearly flat layers, source on the surface: the direct wave first, then the one along the faster layer."""
    radius, v1, v2, h = 1e7, 5.8, 6.5, 20.0
    edges = radius - np.array([0.0, h, h + 3000.0])
    u_top, u_bottom = edges[:-1] / np.array([v1, v2]), edges[1:] / np.array([v1, v2])
    medium = ray_branches.layered(radius, edges[:-1], edges[1:], u_top, u_bottom)
    distance = np.arange(0.0, 300.0, 5.0)
    found = ray_branches.branch_times(medium, 0.0, distance / radius, above=False)
    direct = distance / v1
    refracted = distance / v2 + 2 * h * np.sqrt(1 / v1**2 - 1 / v2**2)
    critical = 2 * h * (v1 / v2) / np.sqrt(1 - (v1 / v2) ** 2)
    first = np.where(distance >= critical, np.minimum(direct, refracted), direct)
    chosen = found.first_arrival()
    np.testing.assert_allclose(found.T[chosen, np.arange(len(distance))], first, atol=2e-3)
    assert medium.boundaries() == pytest.approx([h])
    np.testing.assert_array_equal(chosen, (distance >= critical) & (refracted < direct))


def test_nodes_agree_with_taupy(table, taupy):
    rng = np.random.default_rng(11)
    hard = [(0, 0.25), (20, 3.0), (35, 1.5), (36, 10.0), (410, 12.0), (660, 24.0)]
    hard += [(694, 97.0), (0, 99.75), (0, 20.25), (300, 150.0)]
    cells = [*hard, *((int(rng.integers(695)), rng.integers(1, 600) / 4) for _ in range(60))]
    for depth, dist in cells:
        assert table.times[depth, int(4 * dist)] == pytest.approx(taupy(depth, dist).time, abs=2e-3), (depth, dist)


def test_points_between_nodes_agree_with_taupy(table, taupy):
    """Times, ray parameters, and dT/dz = -cos(take-off)/v with the angle counted from the downward vertical."""
    from obspy.taup import TauPyModel

    velocity = TauPyModel("ak135").model.s_mod.v_mod
    rng = np.random.default_rng(12)
    depth = np.r_[rng.uniform(0, 60, 40), rng.uniform(0, 694, 60)]
    dist = np.r_[rng.uniform(0, 30, 60), rng.uniform(0, 120, 40)]
    T, Tz, Tx = table.lookup(depth, dist)
    wanted = [taupy(z, x) for z, x in zip(depth, dist, strict=True)]
    error = np.abs(T - [arrival.time for arrival in wanted])
    assert np.median(error) < 2e-4 and error.max() < 0.01
    slope = np.abs(Tx - [arrival.ray_param_sec_degree for arrival in wanted])
    assert np.median(slope) < 1e-3 and np.percentile(slope, 95) < 0.02
    v = np.array([velocity.evaluate_below(z, "p")[0] for z in depth])
    down = np.abs(Tz + np.cos(np.radians([arrival.takeoff_angle for arrival in wanted])) / v)
    assert np.median(down) < 1e-4 and np.percentile(down, 95) < 2e-3


def test_near_the_source_times_are_chords(table):
    depth, dist = np.meshgrid(np.linspace(0, 19.9, 200), np.r_[0, np.geomspace(1e-4, 0.2, 40)], indexing="ij")
    # The crust's upper layer; from 0.2 degrees on the refraction along the lower one is first for deep sources.
    wanted = chord(depth, dist) / 5.8
    found, Tz, Tx = table.lookup(depth, dist)
    direct = (dist < 0.1) | (depth < 15)
    np.testing.assert_allclose(found[direct], wanted[direct], atol=1e-3)
    assert (found <= wanted + 1e-3).all()
    above = depth > 0.5
    depth, dist, Tz = (part[above & direct] for part in (depth, dist, Tz))
    np.testing.assert_allclose(Tz, (R * np.cos(np.radians(dist)) - (R - depth)) / (chord(depth, dist) * 5.8), atol=5e-3)
    assert table.lookup(0.0, 0.0) == (0.0, 0.0, 0.0)
    assert table.lookup(0.0, 1e-3)[2] == pytest.approx(np.radians(R) / 5.8, rel=1e-3)
    assert table.lookup(10.0, 0.0)[0] == pytest.approx(10 / 5.8, abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(st.floats(0, 694), st.floats(0.001, 180))
def test_slopes_are_those_of_the_surface(table, depth, dist):
    step = 1e-6
    T, Tz, Tx = table.lookup(depth, dist)
    for slope, side, top in ((Tz, np.array([step, 0]), 694), (Tx, np.array([0, step]), 180)):
        at, point = (depth if side[0] else dist), np.array([depth, dist])
        # A kink has two slopes; the one reported is that of one side.
        off = []
        if at >= step:
            off.append(abs((T - table.lookup(*(point - side))[0]) / step - slope))
        if at <= top - step:
            off.append(abs((table.lookup(*(point + side))[0] - T) / step - slope))
        assert min(off) < 2e-3 * max(1.0, abs(slope))


@settings(max_examples=200, deadline=None)
@given(st.floats(0, 694), st.floats(0, 179))
def test_time_is_continuous_and_rises_with_distance(table, depth, dist):
    T0, T1 = table.lookup(depth, dist + np.array([0.0, 1e-7]))[0]
    assert -1e-4 < T1 - T0 < 1e-4
    assert table.lookup(depth, dist + 0.05)[0] > T0
    if depth > 1e-7:
        assert abs(table.lookup(depth - 1e-7, dist)[0] - T0) < 1e-4


def test_bend_of_a_crossover_is_kept(table, taupy):
    """Along 0.01 degrees through the change from the crust to the mantle the table stays on the branch that is
    first."""
    dist = np.arange(1.0, 2.0, 0.02)
    wanted = np.array([taupy(5.0, x).time for x in dist])
    assert np.abs(table.lookup(5.0, dist)[0] - wanted).max() < 5e-3


def test_default_grid_and_shape(table):
    assert table.times.shape == (695, 721) and np.isfinite(table.times).all()
    assert list(table.depths_km[[0, 1, -1]]) == [0, 1, 694] and list(table.dist_deg[[0, 1, -1]]) == [0, 0.25, 180]
    assert (np.diff(table.times, axis=1) > 0).all()
    T, Tz, Tx = table.lookup(table.depths_km[:, None], table.dist_deg)
    np.testing.assert_allclose(T, table.times, atol=1e-9)
    assert all(np.isfinite(part).all() for part in (Tz, Tx))


def test_shadow(table, taupy):
    assert table.p_end_deg[0] == pytest.approx(99.65, abs=0.01) and table.p_end_deg[694] == pytest.approx(
        96.92, abs=0.01
    )
    for dist in (105.0, 140.0):
        arrival = taupy(100.0, dist)
        T, _, Tx = table.lookup(100.0, dist)
        assert (
            arrival.name == "Pdiff"
            and T == pytest.approx(arrival.time, abs=2e-3)
            and Tx == pytest.approx(4.439, abs=0.01)
        )
    refusing = build_p_table(dist_deg=np.arange(0, 181, 1.0), depths_km=[0, 100, 200], cache=False, progress=False)
    assert np.isnan(refusing.times[:, 100:]).all() and np.isfinite(refusing.times[:, :99]).all()
    message = r"distance 99.5 degrees at \(1,\) lies in the core's shadow: from 200 km depth P ends at 99.04 degrees"
    with pytest.raises(ValueError, match=message):
        refusing.lookup(200.0, np.array([98.0, 99.5]))
    T, Tz, Tx = refusing.lookup(200.0, np.array([98.0, 99.5]), on_shadow="nan")
    assert np.isnan([T[1], Tz[1], Tx[1]]).all() and T[0] == pytest.approx(taupy(200.0, 98.0).time, abs=0.02)


def test_other_model_and_grid(taupy):
    from obspy.taup import TauPyModel

    table = build_p_table(np.arange(0, 101, 5.0), np.arange(0, 60.5, 0.5), model="iasp91", cache=False, progress=False)
    model = TauPyModel("iasp91")
    for depth, dist in ((0, 30.0), (35, 2.5), (100, 55.5)):
        wanted = min(arrival.time for arrival in model.get_travel_times(depth, dist, ["p", "P"]))
        assert table.times[depth // 5, int(2 * dist)] == pytest.approx(wanted, abs=2e-3)


def test_cache_by_content(tmp_path):
    grid = {"depths_km": [0, 10, 20], "dist_deg": [0, 1, 2], "progress": False}
    one = build_p_table(**grid, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    written = file.stat().st_mtime_ns
    again = build_p_table(**grid, cache=tmp_path, shadow="diffracted")
    assert file.stat().st_mtime_ns == written and again.shadow == "diffracted"
    np.testing.assert_array_equal(one.times, again.times)
    build_p_table(**{**grid, "dist_deg": [0, 1, 2, 3]}, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    file.write_bytes(file.read_bytes()[:300])
    with pytest.warns(UserWarning, match="is damaged .*; it is built again"):
        mended = build_p_table(**grid, cache=tmp_path)
    np.testing.assert_array_equal(one.times, mended.times)
    np.testing.assert_array_equal(build_p_table(**grid, cache=tmp_path).times, one.times)


def test_an_interrupted_build_leaves_nothing(tmp_path, monkeypatch):
    calls = []

    def interrupted(*arguments, **settings):
        calls.append(1)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return original(*arguments, **settings)

    original = ray_branches.branch_times
    monkeypatch.setattr(ray_branches, "branch_times", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_p_table([0, 10, 20, 30], [0, 1], cache=tmp_path, progress=False)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    assert np.isfinite(build_p_table([0, 10, 20, 30], [0, 1], cache=tmp_path, progress=False).times).all()


def test_two_processes_share_a_cache(tmp_path):
    code = (
        "from implicit_models.seismology.table.travel_times import build_p_table as b; print(b([0, 5], [0, 1],"
        " progress=False).times.sum())"
    )
    environment = {**os.environ, "IMPLICIT_CACHE": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    assert len({process.communicate()[0] for process in both}) == 1 and not any(process.returncode for process in both)
    assert [path.suffix for path in (tmp_path / "travel_times").iterdir()] == [".npz"]


def test_a_folder_that_cannot_be_written_is_only_a_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.warns(UserWarning, match="could not be kept"):
        assert build_p_table([0, 5], [0, 1], cache=blocked / "sub", progress=False).times.shape == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depths_km": [0, 1, 3]}, r"depths_km must rise in even steps of 1.5, got 1 at index 1"),
        ({"depths_km": [5.0]}, r"two or more values in one dimension, got shape \(1,\)"),
        ({"depths_km": [-5, 0]}, "must start at 0 or below the surface, got -5"),
        ({"depths_km": [0, 3000]}, "above the core at 2891.5 km, got 3000"),
        ({"dist_deg": [0, 200]}, "in 0 to 180 degrees, got 0 to 200"),
        ({"dist_deg": [10, 0]}, "must rise in even steps"),
        ({"dist_deg": [0, np.nan]}, "even steps"),
        ({"phases": ("p", "P", "PKP")}, r"'p', 'P' and perhaps 'Pdiff', got \('p', 'P', 'PKP'\)"),
        ({"phases": ("P",)}, "the phases 'p', 'P'"),
        ({"phases": ("p", "P"), "shadow": "diffracted"}, "needs the phase 'Pdiff'"),
        ({"shadow": "nan"}, "'refuse' or 'diffracted', got 'nan'"),
        ({"model": "flat"}, "no Earth model 'flat'"),
    ],
)
def test_bad_settings_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_p_table(**arguments, cache=False, progress=False)


def test_bad_lookups_are_named(table):
    for depth, dist, message in (
        (700.0, 10.0, "depth 700 km and distance 10 degrees are off the table: depths 0 to 694 km"),
        ([1, -1], 10.0, r"depth -1 km .* at \(1,\)"),
        (1.0, [[5.0], [181.0]], r"distance 181 degrees at \(1, 0\)"),
        (np.nan, 5.0, "depth nan km"),
    ):
        with pytest.raises(ValueError, match=message):
            table.lookup(depth, dist)
    with pytest.raises(ValueError, match="on_shadow must be 'raise' or 'nan', got 'clip'"):
        table.lookup(1, 1, on_shadow="clip")


def test_a_kernel_looks_up_single_points(table):
    from numba import njit

    from implicit_models.seismology.table.kernels import beyond_p, lookup

    @njit
    def both(tables, depth, dist):
        return lookup(tables, depth, dist), beyond_p(tables, depth, dist)

    for depth, dist in ((0.0, 0.0), (8.0, 1.2), (33.3, 44.4), (694.0, 180.0), (300.0, 98.0)):
        found, beyond = both(table.arrays, depth, dist)
        assert found == table.lookup(depth, dist)
        assert beyond == (dist > np.interp(depth, table.depths_km, table.p_end_deg))
    for depth, dist in ((-1e-9, 1.0), (694.1, 1.0), (1.0, -0.1), (1.0, 180.1), (np.nan, 1.0), (1.0, np.nan)):
        assert np.isnan(both(table.arrays, depth, dist)[0]).all()


def test_a_zone_without_turning_rays_is_refused():
    radii = np.array([6371.0, 6300.0, 6200.0, 6000.0])
    u = radii / np.array([8.0, 8.0, 7.0, 8.5])
    with pytest.raises(ValueError, match="slowness r/v rises with depth at 71 km"):
        ray_branches.layered(R, radii[:-1], radii[1:], u[:-1], u[1:])
