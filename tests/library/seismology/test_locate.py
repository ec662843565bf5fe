"""The command and the table-level interface: a file in, a report and a figure out; real earthquakes."""

import math
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from implicit_models.seismology.geodesy import destination, distance_azimuths, geocentric_latitude
from implicit_models.seismology.locate import locate, main
from implicit_models.seismology.location import utc
from implicit_models.seismology.picks.files import read_picks
from implicit_models.seismology.table.travel_times import build_p_table

obspy = pytest.importorskip("obspy", reason="travel times need obspy's Earth models")

KM = math.pi / 180 * 6371.0
ORIGIN = 1.6e9  # 2020-09-13T12:26:40Z
STATIONS = ("AAA", "BBB", "CCC", "DDD", "EEE", "FFF", "GGG", "HHH")
DIST = np.array([3.0, 6.0, 9.0, 13.0, 18.0, 24.0, 30.0, 40.0])
AZIMUTH = np.array([20.0, 100.0, 190.0, 280.0, 330.0, 60.0, 150.0, 240.0])
SOURCE = 35.0, 25.0, 40.0  # on the sphere


@pytest.fixture(scope="module")
def table():
    return build_p_table(shadow="diffracted", progress=False)


def rows(table, event="1", shift=0.0):
    """Lines of a CSV whose picks are exact for SOURCE; geographic latitudes."""
    lat, lon, _ = destination(SOURCE[0], SOURCE[1], DIST, AZIMUTH)
    lat = np.degrees(np.arctan(np.tan(np.radians(lat)) / (1 - 1 / 298.257223563) ** 2))
    time = ORIGIN + shift + table.lookup(SOURCE[2], DIST)[0]
    return [
        [event, s, f"{a:.8f}", f"{b:.8f}", f"{np.datetime64(round(1e6 * t), 'us')}Z", "P", "0.1"]
        for s, a, b, t in zip(STATIONS, lat, lon, time)
    ]


def write(tmp_path, lines, name="picks.csv"):
    path = tmp_path / name
    path.write_text("event,station,lat,lon,p_time,phase,sigma_s\n" + "".join(",".join(line) + "\n" for line in lines))
    return path


def off_km(location, lat, lon, geographic=True):
    centric = geocentric_latitude if geographic else (lambda a: a)
    return KM * distance_azimuths(geocentric_latitude(location.lat), location.lon, centric(lat), lon)[0]


def test_a_file_is_located(tmp_path, table):
    (found,) = locate(read_picks(write(tmp_path, rows(table))), table=table)
    assert off_km(found, *SOURCE[:2], geographic=False) < 0.05 and found.depth_km == pytest.approx(40, abs=0.05)
    assert found.origin_time == pytest.approx(ORIGIN, abs=0.01) and found.flags == () and found.located
    np.testing.assert_allclose(found.residuals["dist_deg"], DIST, atol=1e-3)
    np.testing.assert_allclose(found.residuals["residual_s"], 0, atol=1e-3)
    assert found.residuals["used"].all() and found.depth_error_km > 1 and found.time_error_s > 0.1


def test_the_report_says_what_a_user_needs(tmp_path, table):
    lines = rows(table)
    lines.append(["1", "AAA", *lines[0][2:5], "SS", ""])
    text = locate(read_picks(write(tmp_path, lines)), table=table)[0].report()
    for said in (
        "Event 1 (geiger)",
        "2020-09-13T12:26:40.00",
        "35.1810 N  25.0000 E",
        "depth        40.0 km +-",
        "90 % ellipse",
        "half axes",
        "8 of 9 picks used",
        "gap",
        "phase 'SS' is neither a first P or S nor pP or sP",
        "station",
    ):
        assert said in text
    assert len([line for line in text.splitlines() if line.strip().startswith(STATIONS)]) == 9


def test_two_events_stay_apart(tmp_path, table):
    lines = rows(table, "b", 1000.0) + rows(table, "a")
    found = locate(read_picks(write(tmp_path, lines)), table=table)
    assert [f.event for f in found] == ["b", "a"]
    assert found[0].origin_time - found[1].origin_time == pytest.approx(1000, abs=0.01)


def test_refused_picks_are_in_the_residuals_with_their_reason(tmp_path, table):
    lines = rows(table)
    lines[2][4] = lines[2][4][:17] + "59.5Z"  # an error of the minute's end
    far_lat, far_lon, _ = destination(SOURCE[0], SOURCE[1], 110.0, 45.0)
    time = ORIGIN + float(table.lookup(SOURCE[2], 110.0)[0])
    lines.append(
        ["1", "FAR", f"{far_lat:.6f}", f"{far_lon:.6f}", f"{np.datetime64(round(1e6 * time), 'us')}Z", "P", "0.1"]
    )
    (found,) = locate(read_picks(write(tmp_path, lines)), table=table)
    reasons = dict(zip(found.residuals["station"], found.residuals["reason"]))
    assert reasons["CCC"].startswith("outlier: ") and reasons["FAR"].startswith("refused as P: the direct P ends at 9")
    assert set(found.flags) >= {"outliers", "beyond_p"} and found.residuals["used"].sum() == 7
    assert off_km(found, *SOURCE[:2], geographic=False) < 0.1
    assert "! beyond_p: some picks lie beyond" in found.report()


def test_an_event_with_two_picks_is_reported_not_raised(tmp_path, table):
    good, few = rows(table, "good"), rows(table, "few")[:2]
    found = locate(read_picks(write(tmp_path, good + few)), table=table)
    assert found[0].located and not found[1].located and found[1].flags == ("too_few",)
    assert "Event few: not located" in found[1].report() and not found[1].residuals["used"].any()


def test_what_locate_refuses(tmp_path, table):
    picks = read_picks(write(tmp_path, rows(table)))
    with pytest.raises(TypeError, match="picks must be a DataFrame"):
        locate(np.zeros(3))
    with pytest.raises(ValueError, match="no column p_time, flag"):
        locate(picks.drop(columns=["p_time", "flag"]))
    with pytest.raises(ValueError, match="has no rows"):
        locate(picks[:0])
    with pytest.raises(ValueError, match="method must be 'geiger' or a LearnedLocator.*'fast'"):
        locate(picks, method="fast")
    with pytest.raises(TypeError, match="method must be"):
        locate(picks, method=3)


def altered(picks, name, value, rows=(2,)):
    picks = picks.copy()
    if value is None or isinstance(value, str):
        picks[name] = picks[name].astype(object)
    picks.loc[list(rows), name] = value
    return picks


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("p_time", np.nan, r"row 4 \(event 1, station CCC\): p_time = nan is not seconds since 1970"),
        ("p_time", "now", "p_time must be numbers .*, its column has object"),
        ("lat", 90.5, r"row 4 .*: lat = 90.5 is not degrees in -90\.\.90"),
        ("lon", np.inf, "row 4 .*: lon = inf"),
        ("elev_m", -np.inf, "row 4 .*: elev_m = -inf"),
        ("sigma_s", 0.0, "row 4 .*: sigma_s = 0 is not positive"),
        ("baz", np.inf, "row 4 .*: baz = inf"),
        ("sigma_baz", -5.0, "row 4 .*: sigma_baz = -5"),
        ("event", None, "row 4: event is missing"),
        ("flag", None, "row 4: flag is missing; a pick that is used has the flag ''"),
    ],
)
def test_a_bad_value_of_a_frame_is_named_with_its_row(tmp_path, table, name, value, said):
    picks = read_picks(write(tmp_path, rows(table)))
    with pytest.raises(ValueError, match=said):
        locate(altered(picks, name, value), table=table)
    if isinstance(value, float):  # what is not used need not be right
        assert (
            locate(altered(altered(picks, name, value), "flag", "noisy"), table=table)[0].residuals["used"].sum() == 7
        )


def test_dates_are_not_taken_for_seconds(tmp_path, table):
    picks = read_picks(write(tmp_path, rows(table)))
    picks["p_time"] = pd.to_datetime(picks["p_time"], unit="s", utc=True)
    with pytest.raises(ValueError, match="p_time must be numbers .seconds since 1970.*datetime64"):
        locate(picks, table=table)
    for option in ("sigma_s", "sigma_baz"):
        with pytest.raises(ValueError, match=f"{option} must be positive, got 0"):
            locate(read_picks(write(tmp_path, rows(table))), table=table, **{option: 0.0})


def test_missing_sigmas_take_the_default(tmp_path, table):
    lines = [[*line[:6], ""] for line in rows(table)]
    picks = read_picks(write(tmp_path, lines))
    tight, loose = (locate(picks, table=table, sigma_s=s, model_error_s=0.0, prior_dof=math.inf)[0] for s in (0.1, 0.4))
    assert list(tight.residuals["sigma_s"]) == [0.1] * 8
    np.testing.assert_allclose(loose.ellipse.semi_major_km, 4 * tight.ellipse.semi_major_km, rtol=0.02)


def test_seconds_become_dates():
    assert utc(ORIGIN + 0.1234) == "2020-09-13T12:26:40.123Z" and utc(-1.0) == "1969-12-31T23:59:59.000Z"


# The command


def test_the_command_prints_and_draws(tmp_path, table, capsys):
    path = write(tmp_path, rows(table))
    assert main([str(path), "--map", str(tmp_path / "map.png")]) == 0
    out = capsys.readouterr().out
    assert "origin time  2020-09-13T12:26:40" in out and "map.png" in out
    assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("old", "new", "said"), [("Z", "", "no time zone"), (",P,", ",P,x", "sigma_s = 'x0.1' is not a number")]
)
def test_the_command_names_the_row_of_a_bad_file(tmp_path, table, capsys, old, new, said):
    path = write(tmp_path, rows(table))
    lines = path.read_text().splitlines()
    lines[3] = lines[3].replace(old, new)
    path.write_text("\n".join(lines))
    assert main([str(path)]) == 2
    message = capsys.readouterr().err
    assert "row 4" in message and said in message


def test_the_command_without_a_location(tmp_path, table, capsys):
    assert main([str(write(tmp_path, rows(table)[:2]))]) == 1
    assert "not located" in capsys.readouterr().out


def test_the_command_with_a_fixed_depth_and_a_station_list(tmp_path, table, capsys):
    lines = rows(table)
    (tmp_path / "list.csv").write_text(
        "sta,lat,lon,elev_m\n" + "".join(f"{line[1]},{line[2]},{line[3]},0\n" for line in lines)
    )
    path = write(tmp_path, [[line[0], line[1], "", "", *line[4:]] for line in lines])
    assert main([str(path), "--stations", str(tmp_path / "list.csv"), "--depth", "40"]) == 0
    assert "depth        40.0 km (fixed)\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--map", "map.xyz"], "the name must end in one of .*png"),
        (["--map", "none/map.png"], "there is no folder none"),
        (["--map", "."], "the name must end in"),
        (["--method", "implicit", "--depth", "10"], "belong to --method geiger"),
        (["--method", "eikonet", "--sigma", "1"], "belong to --method geiger"),
        (["--method", "eikonet", "--model-error", "1"], "belong to --method geiger"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(tmp_path, table, capsys, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as error:
        main([str(write(tmp_path, rows(table))), *options])
    printed = capsys.readouterr()
    assert error.value.code == 2 and re.search(said, printed.err) and not printed.out


def test_the_command_names_a_station_list_that_is_none(tmp_path, table, capsys):
    assert main([str(write(tmp_path, rows(table))), "--stations", str(tmp_path / "nix.csv")]) == 2
    assert "no station list at" in capsys.readouterr().err
    packed = tmp_path / "picks.csv.gz"
    packed.write_bytes(b"no gzip")
    assert main([str(packed)]) == 2 and "not a whole gzip file" in capsys.readouterr().err


def test_the_command_needs_a_trained_locator(tmp_path, table, capsys, monkeypatch):
    path = write(tmp_path, rows(table))
    monkeypatch.setenv("IMPLICIT_CACHE", str(tmp_path))
    assert main([str(path), "--method", "implicit"]) == 2
    assert re.search("no learned locator at .*train_locator --method implicit` writes one", capsys.readouterr().err)
    with pytest.raises(SystemExit):
        main([str(path), "--model", "x.npz"])


# The figure


def test_the_figure_shows_every_station_and_the_ellipse(tmp_path, table):
    from matplotlib.patches import Ellipse

    from implicit_models.seismology.location_figure import location_figure

    lines = rows(table)
    lines[2][4] = lines[2][4][:17] + "59.5Z"
    (found,) = locate(read_picks(write(tmp_path, lines)), table=table)
    left, right = location_figure(found).axes
    used, refused, star = (c.get_offsets() for c in left.collections)
    assert len(used) == 7 and len(refused) == 1 and len(star) == 1
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        "7 stations used",
        "1 station left out",
        "epicentre",
    ]
    # Azimuthal: distance and direction from the epicentre are those of the picks.
    kept = found.residuals[found.residuals["used"]]
    np.testing.assert_allclose(np.hypot(*used.T), kept["dist_deg"])
    np.testing.assert_allclose(np.degrees(np.arctan2(used[:, 0], used[:, 1])) % 360, kept["azimuth"], atol=1e-6)
    (patch, _) = [p for p in right.patches if isinstance(p, Ellipse)]
    assert (patch.width / 2, patch.height / 2) == pytest.approx(
        (found.ellipse.semi_major_km, found.ellipse.semi_minor_km)
    )
    assert (90 - patch.angle) % 180 == pytest.approx(found.ellipse.azimuth % 180)


def test_no_figure_without_a_location(tmp_path, table):
    from implicit_models.seismology.location_figure import location_figure

    (found,) = locate(read_picks(write(tmp_path, rows(table)[:2])), table=table)
    with pytest.raises(ValueError, match="was not located"):
        location_figure(found)


# Real earthquakes


@pytest.fixture
def registry():
    if not os.environ.get("IMPLICIT_DATA"):
        pytest.skip("IMPLICIT_DATA is not set: no station registry")


def covered(found, lat, lon):
    dist, azimuth, _ = distance_azimuths(geocentric_latitude(found.lat), found.lon, geocentric_latitude(lat), lon)
    a = math.radians(azimuth - found.ellipse.azimuth)
    return (
        math.hypot(
            KM * dist * math.cos(a) / found.ellipse.semi_major_km, KM * dist * math.sin(a) / found.ellipse.semi_minor_km
        )
        <= 1
    )


def test_the_pde_event(registry, table):
    (found,) = locate(read_picks(Path(obspy.__file__).parent / "io/pde/tests/data/mchedr.dat"), table=table)
    assert off_km(found, 31.456, 138.072) < 15 and abs(found.depth_km - 365.3) < 10
    assert covered(found, 31.456, 138.072)
    assert abs(found.depth_km - 365.3) < 1.645 * found.depth_error_km
    assert found.residuals["used"].sum() == 27 and found.rms_s < 1


def test_the_ground_truth_event_of_1967(registry, table):
    picks = read_picks(Path(obspy.__file__).parent / "io/iaspei/tests/data/19670130012028.isf")
    (found,) = locate(picks, table=table)
    assert off_km(found, 41.0502, 44.2685) < 15 and found.depth_km < 33 and covered(found, 41.0502, 44.2685)
    refused = found.residuals[found.residuals["reason"].str.startswith("refused as P")]
    assert list(refused["station"]) == ["TFO"] and (refused["dist_deg"] > 99).all()
    assert found.residuals["used"].sum() > 120


def test_a_frame_of_ones_own(table):
    lat, lon, _ = destination(10.0, 20.0, DIST, AZIMUTH)
    frame = pd.DataFrame(
        {
            "event": "x",
            "station": STATIONS,
            "lat": lat,
            "lon": lon,
            "elev_m": 0.0,
            "p_time": table.lookup(5.0, DIST)[0],
            "phase": "P",
            "sigma_s": np.nan,
            "baz": np.nan,
            "sigma_baz": np.nan,
            "row": range(8),
            "flag": "",
        }
    )
    (found,) = locate(frame, table=table)
    assert found.located and abs(found.origin_time) < 5
