"""Picks from CSV and from catalogues: times, units, phases, repeats, station joins, and errors that name the row."""

import datetime as dt
import gzip
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from implicit_models.seismology.picks.csv import utc_seconds
from implicit_models.seismology.picks.files import read_picks
from implicit_models.seismology.picks.pick import COLUMNS

HEADER = "station,lat,lon,elev_m,p_time,phase,sigma_s,baz,sigma_baz\n"
ROW = "AAA,10,20,100,2012-01-01T05:28:48.18Z,P,0.2,45,5\n"


def epoch(*when):
    return dt.datetime(*when, tzinfo=dt.UTC).timestamp()


def write(tmp_path, text, name="picks.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_row_is_read_with_its_units(tmp_path):
    table = read_picks(write(tmp_path, HEADER + ROW))
    assert tuple(table.columns) == COLUMNS
    (row,) = table.to_dict("records")
    assert row == {
        "event": "1",
        "station": "AAA",
        "lat": 10,
        "lon": 20,
        "elev_m": 100,
        "p_time": epoch(2012, 1, 1, 5, 28, 48, 180000),
        "phase": "P",
        "sigma_s": 0.2,
        "baz": 45,
        "sigma_baz": 5,
        "row": 2,
        "flag": "",
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2012-01-01T05:28:48Z", epoch(2012, 1, 1, 5, 28, 48)),
        ("2012-01-01T14:28:48+09:00", epoch(2012, 1, 1, 5, 28, 48)),
        ("2012-01-01 01:58:48.5-03:30", epoch(2012, 1, 1, 5, 28, 48, 500000)),
        ("1967-01-30T01:20:44.000+00:00", epoch(1967, 1, 30, 1, 20, 44)),
    ],
)
def test_times_with_a_zone(tmp_path, text, seconds):
    assert read_picks(write(tmp_path, HEADER + ROW.replace("2012-01-01T05:28:48.18Z", text)))["p_time"][0] == seconds


@given(st.integers(-2_000_000_000, 4_000_000_000), st.integers(0, 999_999), st.integers(-14 * 60, 14 * 60))
def test_an_offset_is_taken_off(seconds, micro, offset):
    local = np.datetime64(seconds, "s") + np.timedelta64(micro, "us") + np.timedelta64(offset, "m")
    zone = f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02d}:{abs(offset) % 60:02d}"
    assert utc_seconds(f"{local}{zone}", "here") == pytest.approx(seconds + micro / 1e6, abs=1e-6)


@pytest.mark.parametrize("text", ["2012-01-01T05:28:48.18", "2012-01-01 05:28:48", "2012-01-01"])
def test_local_times_are_refused_with_their_row(tmp_path, text):
    with pytest.raises(ValueError, match=r"row 3: p_time = .*no time zone.*Z.*\+09:00"):
        read_picks(write(tmp_path, HEADER + ROW + ROW.replace("2012-01-01T05:28:48.18Z", text)))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("2012-01-01T05:28:48.18Z", "1325395728.18", "not an ISO 8601 time"),
        ("2012-01-01T05:28:48.18Z", "nan", "not an ISO 8601 time"),
        ("2012-01-01T05:28:48.18Z", "", "not an ISO 8601 time"),
        ("AAA,10", ",10", "station is empty"),
        ("AAA,10,20", "AAA,10,", "one of lat and lon is empty"),
        ("AAA,10,20", "AAA,-90.5,20", r"lat = -90.5 is not in -90\.\.90"),
        ("AAA,10,20", "AAA,10,361", r"lon = 361 is not in -180\.\.360"),
        ("AAA,10,20,100", "AAA,10,20,inf", "elev_m = inf is not in"),
        ("AAA,10,20", "AAA,NaN,20", "lat = nan is not in"),
        ("0.2,45", "0,45", "sigma_s = 0 must be positive"),
        ("0.2,45", "-1,45", "sigma_s = -1 must be positive"),
        ("0.2,45", "0.2,-10", r"baz = -10 is not in 0\.\.360"),
        ("0.2,45", "0.2,NE", "baz = 'NE' is not a number"),
        ("45,5", "45,nan", "sigma_baz = 'nan' is not finite"),
        ("45,5", "45", "8 values for 9 columns"),
        ("AAA,10,20", "AAA,1_0,20", "lat = '1_0' is not a number"),
        ("AAA,10", "A" * 200_000 + ",10", "field larger than field limit"),
    ],
)
def test_a_bad_value_is_named_with_its_row(tmp_path, old, new, said):
    with pytest.raises(ValueError, match=rf"row 4.*{said}"):
        read_picks(write(tmp_path, HEADER + ROW.replace("AAA", "BBB") + "\n" + ROW.replace(old, new)))


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("station,p_time,elev_km", "column 'elev_km' is not known"),
        ("station,p_time,sigma_ms", "column 'sigma_ms' is not known"),
        ("station,p_time,Latitude,lon", "column 'Latitude' is not known"),
        ("station,p_time,back_azimuth", "column 'back_azimuth' is not known"),
        ("station,lat,lon", "one of the columns p_time .* and p_epoch_s"),
        ("station,p_time,p_epoch_s", "not both"),
        ("p_time,lat,lon", "no column station"),
        ("station,p_time,lat", "one of the columns lat and lon"),
        ("station,p_time,p_time", "column p_time appears twice"),
        ("station;p_time", "separated by commas"),
        ("station,p_time,Phase", "column 'Phase' is not known"),
        ("station,p_time,iscphase", "column 'iscphase' is not known"),
        ("station,p_time,Event", "column 'Event' is not known"),
        ("station,p_time,event_id", "column 'event_id' is not known"),
    ],
)
def test_columns_are_checked(tmp_path, header, said):
    with pytest.raises(ValueError, match=said):
        read_picks(write(tmp_path, header + "\n"))


def test_an_unrelated_column_is_ignored_and_seconds_since_1970_have_their_own(tmp_path):
    table = read_picks(write(tmp_path, "station,p_epoch_s,lat,lon,network\nAAA,1325395728.25,1,2,XX\n"))
    assert table["p_time"][0] == 1325395728.25 and table["elev_m"][0] == 0.0


def test_a_file_without_picks(tmp_path):
    with pytest.raises(ValueError, match="has no picks"):
        read_picks(write(tmp_path, HEADER))
    with pytest.raises(FileNotFoundError, match="no picks at"):
        read_picks(tmp_path / "none.csv")


@pytest.mark.parametrize("phase", ["SKS", "PKP", "PKPdf", "SS", "PcP", "pPKP", "PP", "Pdiff", "Lg", "x"])
def test_other_phases_are_flagged(tmp_path, phase):
    table = read_picks(write(tmp_path, HEADER + ROW + ROW.replace(",P,", f",{phase},").replace("AAA", "BBB")))
    assert list(table["flag"]) == ["", f"phase '{phase}' is neither a first P or S nor pP or sP"]


@pytest.mark.parametrize("phase", ["P", "p", "Pn", "Pg", "P*", "PN"])
def test_first_arrivals_under_their_names(tmp_path, phase):
    assert read_picks(write(tmp_path, HEADER + ROW.replace(",P,", f",{phase},")))["flag"][0] == ""


def test_of_two_picks_of_a_station_the_earlier_counts(tmp_path):
    later, other = ROW.replace("48.18", "52.00"), ROW.replace("AAA", "BBB")
    for rows, late, early in (
        (later + ROW + other, 0, 3),
        (ROW + later + other, 1, 2),
        (later + other + ROW + later, 0, 4),
    ):
        flags = list(read_picks(write(tmp_path, HEADER + rows))["flag"])
        assert flags[late] == f"the station's earlier P of row {early} is used"
        assert flags.count("") == 2 and flags[early - 2] == ""


def test_of_several_picks_the_flags_name_the_one_that_is_used(tmp_path):
    table = read_picks(
        write(tmp_path, HEADER + "".join(ROW.replace("48.18", second) for second in ("53", "52", "51", "54")))
    )
    assert list(table["flag"]) == [
        *["the station's earlier P of row 4 is used"] * 2,
        "",
        "the station's earlier P of row 4 is used",
    ]


def test_an_event_without_a_name_is_not_put_into_another(tmp_path):
    with pytest.raises(ValueError, match="row 3: event is empty, and other rows name theirs"):
        read_picks(write(tmp_path, "event," + HEADER + "1," + ROW + "," + ROW.replace("AAA", "BBB")))
    assert set(
        read_picks(write(tmp_path, "event," + HEADER + "," + ROW + "," + ROW.replace("AAA", "BBB")))["event"]
    ) == {"1"}


@pytest.mark.parametrize("seconds", ["1325395728250", "1e300", "-1e12"])
def test_milliseconds_since_1970_are_refused(tmp_path, seconds):
    with pytest.raises(ValueError, match=r"row 2: p_epoch_s = .* in none of the years 1 to 9999.*not milliseconds"):
        read_picks(write(tmp_path, f"station,p_epoch_s,lat,lon\nAAA,{seconds},1,2\n"))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (gzip.compress((HEADER + ROW).encode())[:-9], "picks.csv.gz is not a whole gzip file"),
        ((HEADER + ROW).encode(), "picks.csv.gz is not a whole gzip file"),
        (
            gzip.compress((HEADER + ROW + ROW.replace("AAA", "\u00c4")).encode("latin1")),
            r"row 3: the text is not UTF-8 \(byte 0xc4\)",
        ),
    ],
)
def test_files_that_are_not_what_their_name_says(tmp_path, raw, said):
    path = tmp_path / "picks.csv.gz"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=said):
        read_picks(path)


BARE = "station,p_time\nAAA,2012-01-01T05:28:48.18Z\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "sta,lat,lon,elev_m\nBBB,1,2,3\nAAA,1,5,2,5,300\n",
            "row 3: 6 values for 4 columns",
        ),  # a decimal comma would move it
        ("sta,lat,lon,elev_m\nAAA,1,2\n", "row 2: 3 values for 4 columns"),
        ("sta,lat,lon,elev_m,lat\nAAA,1,2,3,50\n", "column lat appears twice"),
        ("sta,lat,lon,elev_m\n,1,2,3\n", "row 2: sta is empty"),
        ("sta,lat,lon,elev_km\nAAA,1,2,3\n", "no column elev_m"),
        ("<StationXML broken", "list.csv is no StationXML that obspy reads"),
    ],
)
def test_a_bad_station_list_is_named_with_its_row(tmp_path, text, said):
    if text[0] == "<":
        pytest.importorskip("obspy", reason="StationXML is read by obspy")
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(ValueError, match=said):
        read_picks(write(tmp_path, BARE), stations=tmp_path / "list.csv")


def test_a_station_list_may_have_spaces_and_blank_lines(tmp_path):
    (tmp_path / "list.csv").write_text("sta, lat, lon, elev_m\n\nAAA, 1, 2, 3\n")
    assert read_picks(write(tmp_path, BARE), stations=tmp_path / "list.csv")[
        ["lat", "lon", "elev_m"]
    ].values.tolist() == [[1, 2, 3]]


def test_events_do_not_share_stations(tmp_path):
    header = "event," + HEADER
    table = read_picks(write(tmp_path, header + "a," + ROW + "b," + ROW))
    assert list(table["flag"]) == ["", ""] and list(table["event"]) == ["a", "b"]


def test_one_station_at_two_places(tmp_path):
    with pytest.raises(
        ValueError, match=r"row 3 \(station AAA\) is at 11, 20, but row 2 has the same station at 10, 20"
    ):
        read_picks(write(tmp_path, HEADER + ROW + ROW.replace("AAA,10", "AAA,11")))
    across = "".join(ROW.replace("10,20,", place) for place in ("10,180,", "10,-179.999,"))
    assert len(read_picks(write(tmp_path, HEADER + across))) == 2


def test_stations_come_from_a_list(tmp_path):
    (tmp_path / "list.csv").write_text("sta,lat,lon,elev_m\nAAA,1.5,2.5,300\n")
    text = (
        HEADER
        + ROW.replace("10,20,100", ",,")
        + ROW.replace("AAA", "BBB").replace("10,20,100", ",,")
        + ROW.replace("AAA,10,20", "CCC,5,6")
    )
    table = read_picks(write(tmp_path, text), stations=tmp_path / "list.csv")
    assert list(table["lat"][[0, 2]]) == [1.5, 5] and list(table["elev_m"][[0, 2]]) == [300, 100]
    assert list(table["flag"]) == ["", "station 'BBB' is not in list.csv", ""]


def test_a_list_is_asked_for_only_if_a_station_needs_it(tmp_path, monkeypatch):
    monkeypatch.delenv("IMPLICIT_DATA", raising=False)
    assert len(read_picks(write(tmp_path, HEADER + ROW))) == 1
    with pytest.raises(FileNotFoundError, match=r"row 2: station 'AAA' has no coordinates.*sta, lat, lon, elev_m"):
        read_picks(write(tmp_path, HEADER + ROW.replace("10,20,100", ",,")))


def test_a_byte_order_mark_blank_lines_and_gzip(tmp_path):
    path = tmp_path / "picks.csv.gz"
    path.write_bytes(gzip.compress(("\ufeff" + HEADER + "\n" + ROW).encode()))
    assert list(read_picks(path)["row"]) == [3]


# Catalogues


@pytest.fixture
def obspy():
    return pytest.importorskip("obspy", reason="catalogues are read by obspy")


def bulletin(obspy, name):
    return Path(obspy.__file__).parent / "io" / name


@pytest.fixture
def registry():
    if not os.environ.get("IMPLICIT_DATA"):
        pytest.skip("IMPLICIT_DATA is not set: no station registry")


def test_quakeml_and_stationxml(obspy, tmp_path):
    from obspy import UTCDateTime
    from obspy.core.event import Arrival, Catalog, Event, Origin, Pick, QuantityError, WaveformStreamID
    from obspy.core.inventory import Inventory, Network, Station

    time = UTCDateTime(2020, 2, 3, 4, 5, 6.25)
    named = Pick(time=time, phase_hint="Pn", waveform_id=WaveformStreamID("XX", "AAA"), backazimuth=-30.0)
    named.time_errors = QuantityError(uncertainty=0.3)
    named.backazimuth_errors = QuantityError(uncertainty=7.0)
    hinted = Pick(time=time + 1, waveform_id=WaveformStreamID("XX", "BBB"))
    bare = Pick(time=time + 2, phase_hint="P", waveform_id=WaveformStreamID("XX", "CCC"))
    origin = Origin(time=time - 10, latitude=0, longitude=0, arrivals=[Arrival(pick_id=hinted.resource_id, phase="P")])
    path = tmp_path / "events.xml"
    Catalog([Event(picks=[named, hinted, bare], origins=[origin])]).write(str(path), format="QUAKEML")
    places = tmp_path / "stations.xml"
    stations = [Station("AAA", 1, 2, 30), Station("BBB", 4, 5, 60)]
    Inventory(networks=[Network("XX", stations=stations)], source="test").write(str(places), format="STATIONXML")
    table = read_picks(path, stations=places)
    assert list(table["station"]) == ["XX.AAA", "XX.BBB", "XX.CCC"] and list(table["phase"]) == ["Pn", "P", "P"]
    np.testing.assert_allclose(table["p_time"] - epoch(2020, 2, 3, 4, 5, 6, 250000), [0, 1, 2], atol=1e-6)
    assert (table["baz"][0], table["sigma_baz"][0], table["sigma_s"][0], table["elev_m"][1]) == (330, 7, 0.3, 60)
    assert math.isnan(table["baz"][1]) and table["flag"][2] == "station 'XX.CCC' is not in stations.xml"


@pytest.fixture
def quakeml(obspy, tmp_path):
    """Writer of a catalogue, one event for each list of picks, at the station XX.AAA of list.csv; returns what is
    read."""
    from obspy import UTCDateTime
    from obspy.core.event import (
        Arrival,
        Catalog,
        Event,
        Origin,
        Pick,
        QuantityError,
        ResourceIdentifier,
        WaveformStreamID,
    )

    (tmp_path / "list.csv").write_text("sta,lat,lon,elev_m\nAAA,1,2,3\n")

    def pick(sigma=None, sigma_baz=None, **changes):
        made = Pick(
            **{
                "time": UTCDateTime(2020, 1, 1),
                "phase_hint": "P",
                "waveform_id": WaveformStreamID("XX", "AAA"),
                "backazimuth": 5.0,
            }
            | changes
        )
        made.time_errors, made.backazimuth_errors = (
            QuantityError(uncertainty=sigma),
            QuantityError(uncertainty=sigma_baz),
        )
        return made

    def read(
        *events, identifiers=("smi:a/event/1", "smi:a/event/2"), arrival=None, name="events.xml", edit=lambda text: text
    ):
        made = [Event(picks=picks, resource_id=ResourceIdentifier(word)) for picks, word in zip(events, identifiers)]
        if arrival:
            arrivals = [Arrival(pick_id=made[0].picks[0].resource_id, phase=arrival)]
            made[0].origins = [Origin(time=UTCDateTime(2020, 1, 1), latitude=0, longitude=0, arrivals=arrivals)]
        path = tmp_path / name
        Catalog(made).write(str(path), format="QUAKEML")
        path.write_text(edit(path.read_text()))
        return read_picks(path, stations=tmp_path / "list.csv")

    read.pick = pick
    return read


def test_events_whose_identifiers_end_alike_stay_apart(quakeml):
    table = quakeml([quakeml.pick()], [quakeml.pick()], identifiers=("smi:a/event/1", "smi:b/event/1"))
    assert list(table["event"]) == ["smi:a/event/1", "smi:b/event/1"] and list(table["flag"]) == ["", ""]
    assert list(quakeml([quakeml.pick()], [quakeml.pick()])["event"]) == ["1", "2"]


def test_a_pick_that_the_catalogue_rejects_or_has_no_time_is_flagged(quakeml):
    table = quakeml([quakeml.pick(evaluation_status="rejected"), quakeml.pick(evaluation_status="reviewed")])
    assert list(table["flag"]) == ["the catalogue rejects the pick", ""]
    table = quakeml([quakeml.pick()], edit=lambda text: text.replace("2020-01-01T00:00:00.000000Z", "then"))
    assert list(table["flag"]) == ["the pick has no time"] and table["p_time"].isna().all()


def test_the_phase_is_the_arrivals(quakeml):
    assert list(quakeml([quakeml.pick()], arrival="PKPdf")["flag"]) == [
        "phase 'PKPdf' is neither a first P or S nor pP or sP"
    ]
    assert list(quakeml([quakeml.pick(phase_hint="x")], arrival="Pn")["flag"]) == [""]


@pytest.mark.parametrize("sigmas", [(-1.0, None), (None, -2.0), (math.inf, None), (0.0, 0.0), (math.nan, math.nan)])
def test_a_standard_deviation_that_is_none_is_not_stated(quakeml, sigmas):
    table = quakeml([quakeml.pick(0.25, 4.0), quakeml.pick(*sigmas)])
    assert table[["sigma_s", "sigma_baz"]].iloc[0].tolist() == [0.25, 4.0]
    assert table[["sigma_s", "sigma_baz"]].iloc[1].isna().all()


def test_a_name_with_brackets_is_a_name(quakeml):
    assert len(quakeml([quakeml.pick(0.0)], name="events[1].xml")) == 1


def test_a_station_of_another_network_is_another_station(obspy, tmp_path):
    from obspy.core.inventory import Inventory, Network, Station

    path = tmp_path / "stations.xml"
    Inventory(networks=[Network("XX", stations=[Station("AAA", 1, 2, 30)])], source="test").write(
        str(path), format="STATIONXML"
    )
    rows = "".join(f"{name},2012-01-01T05:28:48Z\n" for name in ("XX.AAA", "YY.AAA", "AAA"))
    table = read_picks(write(tmp_path, "station,p_time\n" + rows), stations=path)
    assert list(table["flag"]) == ["", "station 'YY.AAA' is not in stations.xml", ""] and math.isnan(table["lat"][1])
    # A list without networks knows stations by their names alone.
    (tmp_path / "list.csv").write_text("sta,lat,lon,elev_m\nAAA,1,2,30\n")
    assert list(read_picks(write(tmp_path, "station,p_time\n" + rows), stations=tmp_path / "list.csv")["lat"]) == [
        1,
        1,
        1,
    ]


def test_pde_bulletin(obspy, registry):
    table = read_picks(bulletin(obspy, "pde/tests/data/mchedr.dat"))
    assert len(table) == 52 and (table["flag"] == "").sum() == 42
    row = table[table["station"] == "MDJ"].iloc[0]
    assert (row["p_time"], row["phase"], row["lat"]) == (epoch(2012, 1, 1, 5, 31, 6, 640000), "P", 44.6164)
    assert table["baz"].isna().all()  # the field that obspy fills comes from the catalogue's location


def test_isf_bulletin(obspy, registry):
    table = read_picks(bulletin(obspy, "iaspei/tests/data/19670130012028.isf"))
    assert len(table) == 255 and set(table["event"]) == {"840268"}
    row = table[table["station"] == "TIF"].iloc[0]
    assert (row["p_time"], row["phase"], row["flag"]) == (epoch(1967, 1, 30, 1, 20, 44), "P*", "")
    assert list(table[table["station"] == "TAB"]["flag"]) == ["", "the pick has no phase", ""]


def test_computed_angles_of_a_bulletin_are_not_data(obspy, registry):
    with pytest.warns(UserWarning, match="event 2032696 has no picks"):
        table = read_picks(bulletin(obspy, "iaspei/tests/data/ipe202409sel_ims.txt"))
    assert len(table) == 13 and table["baz"].isna().all()


def test_what_obspy_cannot_read(obspy, tmp_path):
    with pytest.raises(ValueError, match="neither CSV .* nor a catalogue"):
        read_picks(write(tmp_path, "hello", "picks.txt"))
