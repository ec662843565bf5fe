"""Station lists: CSV, gzip, StationXML; rows named in errors; names at two places."""

import gzip
import os

import pytest

from implicit_models.seismology.station_lists import DEFAULT_LIST, read_stations

LIST = "sta,altsta,lat,lon,elev_m\nAAA,AAA,43.2717,76.9467,800.0\nTLG,TLG,43.23,77.23,-20\n"


def write(path, text=LIST):
    path.write_text(text)
    return path


def test_a_list_and_its_gzip_agree(tmp_path):
    plain = read_stations(write(tmp_path / "list.csv"))
    packed = tmp_path / "list.csv.gz"
    packed.write_bytes(gzip.compress(LIST.encode()))
    assert plain.places == read_stations(packed).places
    assert (
        plain.find("TLG")[0].lat,
        plain.find("TLG")[0].lon,
        plain.find("TLG")[0].elev_m,
        plain.find("TLG")[0].row,
    ) == (43.23, 77.23, -20.0, 3)


def test_networks_fall_back_to_the_station(tmp_path):
    found = read_stations(write(tmp_path / "list.csv"))
    assert found.find("KZ.AAA") == (found.find("AAA")[0], True) and found.find("XYZ") == (None, False)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("BBB,BBB,91,10,0", r"row 4: lat = 91 is not in -90\.\.90"),
        ("BBB,BBB,1,nan,0", r"row 4: lon = nan is not in"),
        ("BBB,BBB,1,2,", r"row 4: elev_m = '' is not a number"),
        ("BBB,BBB,1,2,12 m", r"row 4: elev_m = '12 m' is not a number"),
        ("BBB,BBB,1,2,25000", r"row 4: elev_m = 25000 is not in"),
    ],
)
def test_a_bad_row_is_named(tmp_path, row, said):
    with pytest.raises(ValueError, match=said):
        read_stations(write(tmp_path / "list.csv", LIST + row + "\n"))


def test_missing_columns_are_named(tmp_path):
    with pytest.raises(ValueError, match="no column elev_m"):
        read_stations(write(tmp_path / "list.csv", "sta,lat,lon\nAAA,1,2\n"))


def test_a_name_at_two_places_fails_only_when_it_is_asked_for(tmp_path):
    found = read_stations(write(tmp_path / "list.csv", LIST + "TLG,TLG,10,20,0\nAAA,AAA,43.2718,76.9467,790\n"))
    assert found.find("AAA")[0].row == 2  # eleven metres apart is one place
    with pytest.raises(ValueError, match=r"'TLG' at 43\.2300, 77\.2300 \(row 3\) and 10\.0000, 20\.0000 \(row 4\)"):
        found.find("TLG")


def test_the_same_place_across_the_antimeridian(tmp_path):
    found = read_stations(
        write(tmp_path / "list.csv", "sta,lat,lon,elev_m\nA,60,180,0\nA,60,-179.9999,0\nA,60,-180,0\n")
    )
    assert found.find("A")[0].row == 2


def test_no_default_says_what_to_give(tmp_path, monkeypatch):
    monkeypatch.delenv("IMPLICIT_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="sta, lat, lon, elev_m.*IMPLICIT_DATA"):
        read_stations()
    monkeypatch.setenv("IMPLICIT_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=DEFAULT_LIST):
        read_stations()
    (tmp_path / DEFAULT_LIST).write_bytes(gzip.compress(LIST.encode()))
    assert len(read_stations()) == 2


def test_station_xml(tmp_path):
    pytest.importorskip("obspy", reason="StationXML is read by obspy")
    from obspy.core.inventory import Inventory, Network, Station

    networks = [
        Network("XX", stations=[Station("AAA", 10.5, -20.25, 123.0)]),
        Network("YY", stations=[Station("AAA", 50, 60, 0)]),
    ]
    path = tmp_path / "stations.xml"
    Inventory(networks=networks, source="test").write(str(path), format="STATIONXML")
    found = read_stations(path)
    assert (found.find("XX.AAA")[0].lat, found.find("XX.AAA")[0].lon, found.find("XX.AAA")[0].elev_m) == (
        10.5,
        -20.25,
        123.0,
    )
    assert found.find("YY.AAA")[0].lat == 50
    with pytest.raises(ValueError, match="has station 'AAA' at"):
        found.find("AAA")


def test_the_registry_of_the_isc():
    if not os.environ.get("IMPLICIT_DATA"):
        pytest.skip("IMPLICIT_DATA is not set: no station registry")
    found = read_stations()
    assert len(found) > 30_000
    assert (found.find("MDJ")[0].lat, found.find("MDJ")[0].lon) == (44.6164, 129.592)
