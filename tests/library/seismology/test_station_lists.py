"""Station lists in the layout that the programmes write by default."""

import datetime as dt
import math

import pytest

from implicit_models.seismology.picks.files import read_picks
from implicit_models.seismology.station_lists import read_stations
from implicit_models.seismology.stations import AmbiguousStation


@pytest.fixture
def read(tmp_path):
    def read(text, name="stations.txt"):
        path = tmp_path / name
        path.write_text(text)
        return read_stations(path)

    return read


def place(found, name, time=math.nan):
    station, _ = found.find(name, time)
    return station.lat, station.lon, station.elev_m


FDSN = """#Network | Station | Latitude | Longitude | Elevation | SiteName | StartTime | EndTime
IU|ANMO|34.9459|-106.4572|1850.0|Albuquerque, New Mexico, USA|1989-08-29T00:00:00|1995-07-14T00:00:00
IU|ANMO|35.9459|-106.4572|1820.0|Albuquerque, moved|1995-07-14T00:00:00|
II|AAK|42.6375|74.4942|1633.1|Ala Archa, Kyrgyzstan|1990-10-12T00:00:00|2599-12-31T23:59:59
"""


def test_fdsn_station_text_with_its_epochs(read, tmp_path):
    found = read(FDSN)
    before, after = (dt.datetime(y, 6, 1, tzinfo=dt.UTC).timestamp() for y in (1994, 2010))
    assert found.networks and place(found, "II.AAK") == (42.6375, 74.4942, 1633.1) == place(found, "AAK", after)
    assert place(found, "IU.ANMO", before)[0] == 34.9459 and place(found, "ANMO", after)[0] == 35.9459
    with pytest.raises(AmbiguousStation, match=r"'IU.ANMO' at 34.9459, -106.4572 \(row 2\) and 35.9459"):
        found.find("IU.ANMO")
    assert found.find("II.ANMO", after) == (None, False)
    (tmp_path / "p.csv").write_text("station,p_time\nIU.ANMO,1994-06-01T00:00:00Z\nIU.ANMO,1980-06-01T00:00:00Z\n")
    table = read_picks(tmp_path / "p.csv", stations=tmp_path / "stations.txt")
    assert (
        table["lat"][0] == 34.9459
        and table["flag"][1] == "stations.txt has station 'IU.ANMO' at other times than the pick's"
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("42.6375", "92.6375", r"row 4: lat = 92.6375 is not in"),
        ("1990-10-12T00:00:00", "long ago", "row 4: .*long ago"),
        ("| Elevation ", "", "has no column elevation"),
        (
            "II|AAK|42.6375|74.4942|1633.1|Ala Archa, Kyrgyzstan|1990-10-12T00:00:00|2599-12-31T23:59:59",
            "II|AAK|4",
            "row 4: 3 values",
        ),
    ],
)
def test_a_bad_row_of_fdsn_text_is_named(read, old, new, said):
    with pytest.raises(ValueError, match=said):
        read(FDSN.replace(old, new))


def test_lines_of_nonlinloc(read):
    found = read(
        "# stations\nGTSRCE AAA LATLON 44.3292 9.7706 0.000 1.200\nGTSRCE BBB LATLONDM 44 19.752 S 9 46.236 W 0.5 0.1\n"
        "GTSRCE CCC LATLONDS 10 30 36.0 N 20 15 18.0 E 0.0 0.0\nEQSTA AAA P GAU 0.1\n"
    )
    assert place(found, "AAA") == (44.3292, 9.7706, 1200.0)
    assert place(found, "BBB") == pytest.approx((-44.3292, -9.7706, -400.0))
    assert place(found, "CCC") == pytest.approx((10.51, 20.255, 0.0))
    with pytest.raises(ValueError, match="row 1: .*has no latitude and longitude"):
        read("GTSRCE AAA XYZ 27.25 -67.78 0.000 1.24\n")


def test_stations_of_hypodd(read):
    found = read("NCAAS  38.4301 -121.1095  31\nNCABA  38.2500 -122.0000\n")
    assert place(found, "NCAAS") == (38.4301, -121.1095, 31.0) and place(found, "NCABA") == (38.25, -122.0, 0.0)
    with pytest.raises(ValueError, match="row 2: 'what' is no station as the rows before are"):
        read("NCAAS  38.4301 -121.1095  31\nwhat\n")


def test_stations_of_hypoinverse_are_west_unless_they_say_east(read):
    found = read(
        "AAS   NC  VHZ  38 25.8060 121  6.5700   310.0  A  0.00  0.00  0.00  0.00 1  0.00\n"
        "BBB   NC  VHZ  38 30.0000S121 30.0000E  200.0  A  0.00  0.00  0.00  0.00 1  0.00\n"
    )
    assert place(found, "NC.AAS") == pytest.approx((38.4301, -121.1095, 31.0)) == place(found, "AAS")
    assert place(found, "NC.BBB") == pytest.approx((-38.5, 121.5, 20.0))


@pytest.mark.parametrize(
    "text",
    [
        "  BER 6023.02N  519.88E  40\n  ASK 6029.00N  511.70E -5 \n\n 5.8  0.0\n",  # SEISAN's STATION0.HYP
        "  BER 6023.02N  5 19.88E  40\n  ASK 6029.00N  5 11.70E  -5\n".replace("5 1", "51"),
    ],
)
def test_stations_of_hypo71_and_seisan(read, text):
    found = read(text, "STATION0.HYP")
    assert place(found, "BER") == pytest.approx((60 + 23.02 / 60, 5 + 19.88 / 60, 40.0))
    assert place(found, "ASK")[:2] == pytest.approx((60 + 29 / 60, 5 + 11.7 / 60))


def test_two_epochs_of_station_xml(tmp_path):
    pytest.importorskip("obspy", reason="StationXML is read by obspy")
    from obspy import UTCDateTime
    from obspy.core.inventory import Inventory, Network, Station

    moved = UTCDateTime(2010, 1, 1)
    stations = [
        Station("AAA", 10.0, 20.0, 5.0, start_date=UTCDateTime(2000, 1, 1), end_date=moved),
        Station("AAA", 11.0, 20.0, 6.0, start_date=moved),
        Station("AAA", 11.0, 20.0, 6.0, start_date=UTCDateTime(2015, 1, 1)),  # new instruments at the same place
    ]
    path = tmp_path / "stations.xml"
    Inventory(networks=[Network("XX", stations=stations)], source="test").write(str(path), format="STATIONXML")
    found = read_stations(path)
    assert place(found, "XX.AAA", moved.timestamp - 1) == (10.0, 20.0, 5.0)
    assert place(found, "XX.AAA", moved.timestamp + 1) == (11.0, 20.0, 6.0) == place(found, "AAA", 1.5e9)
    assert found.find("XX.AAA", 0.0) == (None, False)


SEISCOMP = """<?xml version="1.0" encoding="UTF-8"?>
<seiscomp xmlns="http://geofon.gfz-potsdam.de/ns/seiscomp3-schema/0.11" version="0.11"><Inventory>
<network publicID="n" code="GE"><start>1993-01-01T00:00:00.0000Z</start><station publicID="s" code="APE">
<start>1993-01-01T00:00:00.0000Z</start><description>Apirathos</description><latitude>37.0689</latitude>
<longitude>25.5306</longitude><elevation>620</elevation></station></network></Inventory></seiscomp>
"""


def test_an_inventory_of_seiscomp(read):
    pytest.importorskip("obspy", reason="SeisComP's XML is read by obspy")
    assert place(read(SEISCOMP, "inventory.xml"), "GE.APE", 1.5e9) == (37.0689, 25.5306, 620.0)
