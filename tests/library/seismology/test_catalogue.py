"""The command on catalogues: QuakeML that obspy reads again, a CSV, and events that cannot be used."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from implicit_models.seismology.catalogue import CatalogueWriter
from implicit_models.seismology.geodesy import destination, geographic_latitude
from implicit_models.seismology.locate import in_batches, locate, main
from implicit_models.seismology.picks.files import read_picks
from implicit_models.seismology.table.phases import build_phase_table

obspy = pytest.importorskip("obspy", reason="travel times need obspy's Earth models")

DIST = np.array([3.0, 6.0, 9.0, 13.0, 18.0, 24.0, 30.0, 40.0])
AZIMUTH = np.array([20.0, 100.0, 190.0, 280.0, 330.0, 60.0, 150.0, 240.0])
ORIGIN = 1.6e9
SOURCES = {"one": (35.0, 25.0, 40.0), "a <b> & c": (-10.0, 179.9, 200.0)}


@pytest.fixture(scope="module")
def table():
    return build_phase_table(progress=False)


@pytest.fixture
def picks_file(tmp_path, table):
    """Exact P at eight stations and S at three, of two events; and a third with a station at two places."""
    lines = ["event,station,lat,lon,p_time,phase,sigma_s"]
    for number, (event, (lat, lon, depth)) in enumerate(SOURCES.items()):
        there, east, _ = destination(lat, lon, DIST, AZIMUTH)
        for k in range(11):
            at, phase = k % 8, "S" if k > 7 else "P"
            time = ORIGIN + 1000 * number + float(table.of(phase).lookup(depth, DIST[at])[0])
            moment = np.datetime64(round(1e6 * time), "us")
            place = f"{geographic_latitude(there[at]):.8f},{east[at]:.8f}"
            lines.append(f"{event},XX.S{number}{at},{place},{moment}Z,{phase},0.2")
    lines += [f"bad,YY,{lat},2,2020-01-01T00:00:0{k}Z,P,0.2" for k, lat in enumerate((1, 5, 1, 1))]
    path = tmp_path / "picks.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_catalogue_is_written_for_obspy_and_for_a_table(tmp_path, picks_file, capsys):
    with pytest.warns(UserWarning, match="event bad is not used"):
        assert main([str(picks_file), "--out", str(tmp_path / "located.xml")]) == 0
    assert "2 of 3 events located from 22 of 26 picks" in capsys.readouterr().out
    catalogue = obspy.read_events(str(tmp_path / "located.xml"))
    assert len(catalogue) == 3 and len({str(event.resource_id) for event in catalogue}) == 3
    for number, (event, (lat, lon, depth)) in enumerate(zip(catalogue, SOURCES.values())):
        origin = event.preferred_origin()
        assert origin.latitude == pytest.approx(float(geographic_latitude(lat)), abs=1e-3)
        assert (origin.longitude - lon + 180) % 360 - 180 == pytest.approx(0, abs=1e-3)
        assert origin.depth == pytest.approx(1000 * depth, abs=200)  # metres
        assert origin.time.timestamp == pytest.approx(ORIGIN + 1000 * number, abs=0.02)
        # Degrees of latitude and metres of depth, as QuakeML has them.
        assert 0 < origin.latitude_errors.uncertainty < 0.2 and 0 < origin.depth_errors.uncertainty < 2e4
        assert (
            origin.origin_uncertainty.max_horizontal_uncertainty
            > origin.origin_uncertainty.min_horizontal_uncertainty
            > 100
        )
        assert origin.origin_uncertainty.confidence_level == 90 and origin.quality.used_phase_count == 11
        assert len(event.picks) == len(origin.arrivals) == 11
        by_id = {str(pick.resource_id): pick for pick in event.picks}
        for k, arrival in enumerate(origin.arrivals):
            pick = by_id[str(arrival.pick_id)]
            assert abs(arrival.time_residual) < 0.02 and arrival.time_weight == 1
            assert arrival.distance == pytest.approx(DIST[k % 8], abs=2e-3) and pick.waveform_id.network_code == "XX"
            assert arrival.phase == pick.phase_hint == ("S" if k > 7 else "P")
    assert not catalogue[2].origins and "row 25" in str(read_back(tmp_path)["notes"][2])
    rows = read_back(tmp_path)
    assert list(rows["event"]) == [*SOURCES, "bad"] and list(rows["used"]) == [11, 11, 0]
    assert rows["lon"][1] == pytest.approx(179.9, abs=1e-3) and math.isnan(rows["lat"][2])


def read_back(folder):
    return pd.read_csv(folder / "located.csv")


def test_what_was_written_is_read_again_and_located_alike(tmp_path, picks_file, table):
    picks = read_picks(picks_file, on_failure="ignore")
    found = locate(picks, table=table)
    with CatalogueWriter(tmp_path / "out.xml") as writer:
        writer.add(found)
    again = read_picks(tmp_path / "out.xml", stations=tmp_path / "list.csv") if write_list(tmp_path, picks) else None
    np.testing.assert_allclose(again["p_time"], picks["p_time"], atol=1e-6)
    assert list(again["phase"]) == list(picks["phase"]) and list(again["sigma_s"][:22]) == [0.2] * 22
    for one, two in zip(found[:2], locate(again[:22], table=table)):
        assert (one.lat, one.depth_km) == pytest.approx((two.lat, two.depth_km), abs=1e-3)


def write_list(folder, picks):
    rows = picks.drop_duplicates("station")
    text = "".join(f"{r.station},{r.lat:.8f},{r.lon:.8f},0\n" for r in rows.itertuples())
    return (folder / "list.csv").write_text("sta,lat,lon,elev_m\n" + text)


def test_batches_hold_every_event_once(tmp_path, picks_file):
    picks = read_picks(picks_file, on_failure="ignore")
    shuffled = picks.sample(frac=1.0, random_state=0)
    shuffled.attrs = picks.attrs
    parts = in_batches(shuffled, size=2)
    assert [part["event"].nunique() for part in parts] == [2, 1] and sum(map(len, parts)) == len(picks)
    whole = {location.event: location for location in locate(picks)}
    for part in parts:
        for location in locate(part):
            if location.located:
                assert location.lat == pytest.approx(whole[location.event].lat, abs=1e-6)


def test_a_failure_leaves_no_half_file_under_the_name(tmp_path, picks_file):
    found = locate(read_picks(picks_file, on_failure="ignore"))
    with pytest.raises(RuntimeError), CatalogueWriter(tmp_path / "out.xml") as writer:
        writer.add(found[:1])
        raise RuntimeError
    assert not (tmp_path / "out.xml").exists() and (tmp_path / "out.xml.part").exists()
    assert len(obspy.read_events(str(tmp_path / "out.xml.part"))) == 1


def test_names_that_cannot_be_written_to(tmp_path, picks_file, capsys):
    assert main([str(picks_file), "--out", str(tmp_path / "none" / "x.xml")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main([str(picks_file), "--out", str(tmp_path / "x.csv")]) == 2
    assert "name the QuakeML file" in capsys.readouterr().err


def test_the_report_counts_stations_that_were_found_by_code(tmp_path, table):
    dist, azimuth = DIST[:5], AZIMUTH[:5]
    lat, lon, _ = destination(35.0, 25.0, dist, azimuth)
    places = "".join(f"S{k},{geographic_latitude(a):.6f},{b:.6f},0\n" for k, (a, b) in enumerate(zip(lat, lon)))
    (tmp_path / "list.csv").write_text("sta,lat,lon,elev_m\n" + places)
    times = [np.datetime64(round(1e6 * (ORIGIN + t)), "us") for t in table.p.lookup(40.0, dist)[0]]
    (tmp_path / "p.csv").write_text(
        "station,p_time\n" + "".join(f"{'IV.' * (k < 3)}S{k},{t}Z\n" for k, t in enumerate(times))
    )
    (found,) = locate(read_picks(tmp_path / "p.csv", stations=tmp_path / "list.csv"), table=table)
    assert "3 stations were found by code alone" in found.report()


@pytest.mark.parametrize(
    "name",
    [
        *("quakeml/tests/data/quakeml_1.2_pick.xml", "nlloc/tests/data/nlloc.qml", "nlloc/tests/data/nlloc.hyp"),
        *("nlloc/tests/data/nlloc_v7.hyp", "nlloc/tests/data/nlloc_rejected.hyp", "nlloc/tests/data/nlloc.obs"),
        *(
            "hypodd/tests/data/example.pha",
            "gse2/tests/data/bulletin/gse_2.0_standard.txt",
            "pde/tests/data/mchedr.dat",
        ),
        *("iaspei/tests/data/19670130012028.isf", "iaspei/tests/data/ipe202409sel_ims.txt", "sh/tests/data/local2.evt"),
        *(
            "nordic/tests/data/01-0411-15L.S201309",
            "nordic/tests/data/select.out",
            "nordic/tests/data/Sfile_no_location",
        ),
        *(
            "seiscomp/tests/data/westaus_events_0.14",
            "seiscomp/tests/data/quakeml_1.2_pick.sc3ml",
            "sh/tests/data/tele2.evt",
        ),
        *("cnv/tests/data/obspyck_20141020150701.xml", "seiscomp/tests/data/westaus_events.xml"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_every_kind_of_file_that_obspy_tests_goes_through(tmp_path, name):
    """Whether or not the stations are known: nothing stops, and every pick is in the written file with its fate."""
    (tmp_path / "list.csv").write_text("sta,lat,lon,elev_m\nMDJ,44.6164,129.592,250\n")
    path = Path(obspy.__file__).parent / "io" / name
    if not path.is_file():
        pytest.skip(f"this obspy has no {name}")
    assert main([str(path), "--stations", str(tmp_path / "list.csv"), "--out", str(tmp_path / "located.xml")]) in (0, 1)
    rows = read_back(tmp_path)
    picks = read_picks(path, stations=tmp_path / "list.csv")
    assert rows["picks"].sum() == len(picks) > 0
    assert (
        sum(len(event.picks) for event in obspy.read_events(str(tmp_path / "located.xml")))
        == picks["p_time"].notna().sum()
    )
