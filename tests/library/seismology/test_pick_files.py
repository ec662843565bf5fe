"""Files of picks in the layout that the programmes write by default, one small made file each."""

import datetime as dt
import gzip
import math

import numpy as np
import pytest

from implicit_models.seismology.picks.files import read_picks
from implicit_models.seismology.picks.phase_names import phase_of
from implicit_models.seismology.stations import Station, Stations

LIST = "sta,lat,lon,elev_m\n" + "".join(f"{name},{k + 1},{2 * k},100\n" for k, name in enumerate(("AAA", "BBB", "CCC")))


def epoch(*when, seconds=0.0):
    return dt.datetime(*when, tzinfo=dt.UTC).timestamp() + seconds


@pytest.fixture
def read(tmp_path):
    (tmp_path / "list.csv").write_text(LIST)

    def read(text, name="picks.dat", **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_picks(path, **{"stations": tmp_path / "list.csv"} | options)

    return read


# NonLinLoc


OBS = """PUBLIC_ID smi:local/1
AAA    ?    ?    ? P      ? 20100527 1656 26.1300 GAU  2.00e-02 -1.00e+00 -1.00e+00 -1.00e+00
AAA    ?    ?    ? S      ? 20100527 1656 27.4600 GAU -1.00e+00 -1.00e+00 -1.00e+00 -1.00e+00
BBB    ?    ?    i P      U 20100527 1656 65.0000 GAU  0.00e+00 -1.00e+00 -1.00e+00 -1.00e+00  0
# a second event
\x20
CCC    ?    ?    ? Pn     ? 20100528  001 01.0000 GAU  nan -1.00e+00 -1.00e+00 -1.00e+00
"""


def test_nonlinloc_observations(read):
    table = read(OBS, "nlloc.obs")
    assert list(table["event"]) == ["1", "1", "1", "2"] and list(table["phase"]) == ["P", "S", "P", "Pn"]
    assert table["p_time"][0] == pytest.approx(epoch(2010, 5, 27, 16, 56, 26, 130000), abs=1e-6)
    assert table["p_time"][2] == epoch(2010, 5, 27, 16, 57, 5) and table["p_time"][3] == epoch(2010, 5, 28, 0, 1, 1)
    assert table["sigma_s"][0] == 0.02 and table["sigma_s"][1:].isna().all()
    assert list(table["flag"]) == ["", "", "the catalogue gives the pick no weight (0)", ""]


def test_nonlinloc_observations_in_error(read):
    with pytest.raises(ValueError, match="row 3: 'AAA P 12:00' is no pick of NonLinLoc"):
        read(OBS.replace("AAA    ?    ?    ? S      ? 20100527 1656 27.4600", "AAA P 12:00 #").split("#")[0] + "\n")
    with pytest.raises(ValueError, match="row 2: 20101327 1656 is no date and time"):
        read(OBS.replace("20100527 1656 26", "20101327 1656 26"))


HYP = """NLLOC "x" "LOCATED" "Location completed."
SIGNATURE "   obs:x   NLLoc:v7.00.00(27Oct2017)  run:14Dec2021 22h40m22"
COMMENT ""
GRID  240 240 80  0 0 -4  0.5 0.5 0.5 PROB_DENSITY
SEARCH OCTREE nInitial 25000 nEvaluated 49928 smallestNodeSide 0.1/0.1/0.1 \
oct_tree_integral 3.4e+01 scatter_volume 3.4e+01
HYPOCENTER  x 0.0 y 2.4 z 35.3  OT 3.0582  ix -1 iy -1 iz -1
GEOGRAPHIC  OT 2020 12 09  16 37 3.058205  Lat -39.278154 Long 175.300434 Depth 35.312500
QUALITY  Pmax 3.4e+150 MFmin 29.4 MFmax 29.5 RMS 0.64 Nphs 53 Gap 263.7 Dist 4.1 Mamp -9.90 0 Mdur -9.90 0
VPVSRATIO  VpVsRatio 1.7759  Npair 24  Diff 7.8165
STATISTICS  ExpectX 0.9 Y 4.0 Z 32.9  CovXX 0.9 XY -0.1 XZ 0.2 YY 6.2 YZ -2.0 ZZ 5.9 \
EllAz1  89.3 Dip1  -2.5 Len1  1.7 Az2  2.0 Dip2  46.5 Len2  3.7 Len3  5.3e+00
STAT_GEOG  ExpectLat -39.263474 Long 175.311476 Depth 32.998901
TRANSFORM  SIMPLE LatOrig -39.300000  LongOrig 175.300000  RotCW 0.000000
QML_OriginQuality  assocPhCt 55  usedPhCt 53  assocStaCt -1  usedStaCt 29  depthPhCt -1  stdErr 0.6  azGap 263.7\
  secAzGap 263.7  gtLevel -  minDist 4.1 maxDist 107.4 medDist 38.7
QML_OriginUncertainty  horUnc -1  minHorUnc 1.4  maxHorUnc 3.7  azMaxHorUnc 178.3
FOCALMECH  Hyp  -39.278154 175.300434 35.312500 Mech  0 0 0 mf  0 nObs 0
PHASE ID Ins Cmp On Pha  FM Date     HrMn   Sec     Err  ErrMag    Coda      Amp       Per  >   \
TTpred    Res       Weight    StaLoc(X  Y         Z)        SDist    SAzim  RAz  RDip RQual    Tcorr
AAA    ?    Z    ? P      ? 20201209 1637   19.3339 GAU -1.00e+00 -1.00e+00 -1.00e+00 -1.00e+00 >   17.6946   -\
1.4189    0.8293   20.7446  107.8444   -0.6600  107.4316  11.11  40.0 200.0  0     0.0000
BBB    ?    Z    ? P      d 20201209 1637   10.7803 GAU  2.00e-02 -1.00e+00 -1.00e+00 -1.00e+00 >    \
0.0000    0.0000    0.0000 -1000.0000 -1000.0000 -1000.0000    0.0000   0.00 359.0  -1.0  0     0.0000
END_PHASE
END_NLLOC

"""


def test_nonlinloc_hypocentre_file(read):
    pytest.importorskip("obspy")
    table = read(HYP, "last.hyp")
    assert list(table["station"]) == ["AAA", "BBB"] and math.isnan(table["sigma_s"][0]) and table["sigma_s"][1] == 0.02
    assert list(table["flag"]) == ["", "the catalogue gives the pick no weight (0.0)".replace("0.0", "0")]


# HYPO71 and HYPOINVERSE's phase format


HYPO71 = """AAA IPU0 100527165626.13       27.46 S 1
BBB  P 4 100527165627.00
CCC EPD2 691231235959.99
                 10
AAA  P 1 991231000001.50
"""


def test_a_phase_file_of_hypo71(read):
    table = read(HYPO71, "events.pha71")
    assert list(table["station"]) == ["AAA", "AAA", "BBB", "CCC", "AAA"] and list(table["event"]) == [*"1111", "2"]
    assert list(table["phase"]) == ["P", "S", "P", "P", "P"]
    assert table["p_time"][0] == pytest.approx(epoch(2010, 5, 27, 16, 56, 26, 130000), abs=1e-6)
    assert table["p_time"][1] == pytest.approx(epoch(2010, 5, 27, 16, 56, 27, 460000), abs=1e-6)
    assert table["p_time"][3] == pytest.approx(epoch(2069, 12, 31, 23, 59, 59, 990000), abs=1e-6)
    assert table["p_time"][4] == epoch(1999, 12, 31, 0, 0, 1, 500000)
    assert list(table["flag"]) == ["", "", "the catalogue gives the pick no weight (4)", "", ""]
    with pytest.raises(ValueError, match="row 2: 'what is this' is no line of a phase file of HYPO71"):
        read(HYPO71.replace("BBB  P 4 100527165627.00", "what is this"), "x.pha71")
    with pytest.raises(ValueError, match="row 2: .* has no such time"):
        read(HYPO71.replace("BBB  P 4 100527165627.00", "BBB  P 4 101327165627.00"), "x.pha71")


# What obspy reads


NORDIC = """ 2013  9 1 0411 15.7 L -43.340 170.376  8.5  TES  8 0.2 0.6LTES                1
 STAT SP IPHASW D HRMM SECON CODA AMPLIT PERI AZIMU VELO AIN AR TRES W  DIS CAZ7
 AAA  SZ IP        411 17.24                             145    0.0610    4 304\x20
 BBB  SZ EP   4    411 18.00                             145    0.0610    4 304\x20
 CCC  SZ IS        411 19.00                             145    0.0610    4 304\x20

"""


def test_nordic_file_of_seisan(read):
    pytest.importorskip("obspy")
    table = read(NORDIC, "01-0411-15L.S201309")
    assert list(table["phase"]) == ["P", "P", "S"]
    assert table["p_time"][0] == pytest.approx(epoch(2013, 9, 1, 4, 11, 17, 240000), abs=1e-6)
    assert list(table["flag"]) == ["", "the catalogue gives the pick no weight (4)", ""]


def test_hypodd_phase_file(read):
    pytest.importorskip("obspy")
    text = (
        "#  2025    5   14   14   35   35.510000   40.2254   10.4496   9.408   3.5  0.0   0.0   0.0       20202331\n"
        "AAA   3.5220  1.0  P\nBBB   5.8620  0.0  S\n"
    )
    table = read(text, "events.pha")
    assert list(table["phase"]) == ["P", "S"] and table["flag"][1] == "the catalogue gives the pick no weight (0)"
    assert table["p_time"][0] == pytest.approx(epoch(2025, 5, 14, 14, 35, 35, 510000) + 3.522, abs=1e-4)


ISF = """DATA_TYPE BULLETIN IMS1.0:short
ISC Bulletin
Event   840268 Caucasus

   Date       Time        Err   RMS Latitude Longitude  Smaj  Smin  Az Depth
1967/01/30 01:20:28.17   0.15        41.0502   44.2685 4.091 2.719  49   5.0f        76   70     \
                  ke TEST

Sta     Dist  EvAz Phase        Time      TRes  Azim AzRes   Slow   SRes Def   SNR       Amp   Per Qual Magnitude
AAA     0.73  28.1 P*       01:20:44.000  -0.5                           T__                       ___                1
BBB     0.73  28.1 S        01:20:54.500   0.9                           ___                       ___                2

STOP
"""


def test_isf_bulletin(read):
    pytest.importorskip("obspy")
    table = read(ISF, "bulletin.isf")
    assert list(table["phase"]) == ["P*", "S"] and list(table["flag"]) == ["", ""] and set(table["event"]) == {"840268"}
    assert table["p_time"][1] == epoch(1967, 1, 30, 1, 20, 54, 500000)


SEISCOMP = """<?xml version="1.0" encoding="UTF-8"?>
<seiscomp xmlns="http://geofon.gfz-potsdam.de/ns/seiscomp3-schema/0.11" version="0.11">
  <EventParameters>
    <pick publicID="Pick/1"><time><value>2020-08-28T06:26:51.179700Z</value><uncertainty>0.3</uncertainty></time>
      <waveformID networkCode="AU" stationCode="AAA" channelCode="BHZ"/><phaseHint>P</phaseHint>
      <evaluationMode>manual</evaluationMode></pick>
    <pick publicID="Pick/2"><time><value>2020-08-28T06:26:57.5Z</value></time>
      <waveformID networkCode="AU" stationCode="BBB" channelCode="BHZ"/><phaseHint>S</phaseHint></pick>
    <origin publicID="Origin/1"><time><value>2020-08-28T06:26:41Z</value></time><latitude><value>1</value></latitude>
      <longitude><value>1</value></longitude>
      <arrival><pickID>Pick/1</pickID><phase>P</phase><weight>1</weight></arrival>
      <arrival><pickID>Pick/2</pickID><phase>Sg</phase><weight>0</weight></arrival></origin>
    <event publicID="e2020"><preferredOriginID>Origin/1</preferredOriginID>
      <originReference>Origin/1</originReference></event>
  </EventParameters>
</seiscomp>
"""


def test_seiscomp_xml(read):
    pytest.importorskip("obspy")
    table = read(SEISCOMP, "events.scml")
    assert list(table["station"]) == ["AU.AAA", "AU.BBB"] and list(table["phase"]) == ["P", "Sg"]
    assert table["sigma_s"][0] == 0.3 and list(table["flag"]) == ["", "the catalogue gives the pick no weight (0)"]


# QuakeML


def quakeml(*picks, arrivals="", version="1.2", extra=""):
    head = (
        f'<?xml version="1.0"?>\n<q:quakeml xmlns="http://quakeml.org/xmlns/bed/{version}"'
        f' xmlns:q="http://quakeml.org/xmlns/quakeml/{version}"><eventParameters publicID="smi:a/c">'
    )
    rows = "".join(
        f'<pick publicID="smi:a/p{k}"><time><value>{time}</value>{more}</time><waveformID networkCode="{network}"'
        f' stationCode="{station}"/><phaseHint>{phase}</phaseHint></pick>'
        for k, (network, station, time, phase, more) in enumerate(picks)
    )
    origin = f'<origin publicID="smi:a/o">{arrivals}</origin>' if arrivals else ""
    return f'{head}<event publicID="smi:a/e1"><!-- made -->{origin}{rows}{extra}</event></eventParameters></q:quakeml>'


@pytest.mark.parametrize("version", ["1.2", "1.2-RC3"])
def test_quakeml_without_any_writer(read, version):
    pytest.importorskip("lxml")
    text = quakeml(
        ("XX", "AAA", "2020-02-03T04:05:06.25Z", "P", "<uncertainty>0.2</uncertainty>"),
        ("", "BBB", "2020-02-03T04:05:07", "S", "<uncertainty>-1</uncertainty>"),
        arrivals="<arrival><pickID>smi:a/p1</pickID><phase>Sn</phase><timeWeight>0</timeWeight></arrival>",
        version=version,
    )
    table = read(text, "events.xml")
    assert list(table["station"]) == ["XX.AAA", "BBB"] and list(table["phase"]) == ["P", "Sn"]
    assert table["p_time"].tolist() == [epoch(2020, 2, 3, 4, 5, 6, 250000), epoch(2020, 2, 3, 4, 5, 7)]
    assert table["sigma_s"][0] == 0.2 and math.isnan(table["sigma_s"][1])
    assert list(table["flag"]) == ["", "the catalogue gives the pick no weight (0)"]


def test_quakeml_agrees_with_obspy(read, tmp_path):
    obspy = pytest.importorskip("obspy")
    from pathlib import Path

    root = Path(obspy.__file__).parent / "io"
    for name in (
        "nlloc/tests/data/nlloc.qml",
        "quakeml/tests/data/quakeml_1.2_pick.xml",
        "cnv/tests/data/obspyck_20141020150701.xml",
    ):
        catalogue = obspy.read_events(str(root / name))
        table = read_picks(root / name, stations=Stations("none", {}))
        wanted = [pick for event in catalogue for pick in event.picks]
        assert len(table) == len(wanted)
        np.testing.assert_allclose(table["p_time"], [pick.time.timestamp for pick in wanted], atol=2e-6)
        assert [name.rpartition(".")[2] for name in table["station"]] == [p.waveform_id.station_code for p in wanted]


def test_a_cut_quakeml_file_is_named(read):
    pytest.importorskip("lxml")
    with pytest.raises(ValueError, match="is no whole QuakeML file"):
        read(quakeml(("XX", "AAA", "2020-02-03T04:05:06Z", "P", ""))[:-40], "events.xml")


# Leap seconds


@pytest.mark.parametrize("layout", ["csv", "quakeml"])
def test_travel_times_run_on_through_a_leap_second(read, layout):
    times = ("2016-12-31T23:59:58.5Z", "2016-12-31T23:59:60.5Z", "2017-01-01T00:00:01.5Z")
    if layout == "csv":
        table = read("station,p_time\n" + "".join(f"{s},{t}\n" for s, t in zip(("AAA", "BBB", "CCC"), times)), "p.csv")
    else:
        pytest.importorskip("lxml")
        table = read(quakeml(*(("", s, t, "P", "") for s, t in zip(("AAA", "BBB", "CCC"), times))), "p.xml")
    assert np.diff(table["p_time"]).tolist() == [2.0, 2.0]
    assert table["p_time"][0] == epoch(2016, 12, 31, 23, 59, 58, 500000)


def test_other_midnights_have_no_leap_second(read):
    table = read("station,p_time\nAAA,2017-12-31T23:59:59Z\nBBB,2018-01-01T00:00:01Z\n", "p.csv")
    assert np.diff(table["p_time"]).tolist() == [2.0]
    with pytest.raises(
        ValueError, match="row 2: p_time = '2018-12-31T23:59:60.5Z' is not an ISO 8601 time .*no leap second"
    ):
        read("station,p_time\nAAA,2018-12-31T23:59:60.5Z\n", "p.csv")
    fraction = read("station,p_time\nAAA,2018-12-31T12:34:12.345960Z\n", "p.csv")["p_time"][0]
    assert fraction == pytest.approx(epoch(2018, 12, 31, 12, 34, 12, 345960), abs=1e-6)


def test_a_clock_that_ran_on_is_written_as_utc_again():
    from implicit_models.seismology.leap_seconds import civil

    midnight = epoch(2017, 1, 1)
    np.testing.assert_array_equal(
        civil(np.array([midnight - 1.5, np.nan, midnight + 0.5, midnight + 2.5])),
        [midnight - 1.5, np.nan, midnight + 0.5, midnight + 1.5],
    )
    np.testing.assert_array_equal(civil(np.array([midnight + 10.0])), [midnight + 10.0])


# Phases, names, files


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("Pn", "P"),
        ("iP", "P"),
        ("EPn", "P"),
        ("IP+", "P"),
        ("S", "S"),
        ("eS", "S"),
        ("Sb", "Sg"),
        ("S*", "Sg"),
        ("SG", "Sg"),
    ]
    + [
        ("Sn", "Sn"),
        ("pP", "pP"),
        ("sP", "sP"),
        ("PP", ""),
        ("PKP", ""),
        ("SKS", ""),
        ("eLg", ""),
        ("E", ""),
        ("", ""),
    ],
)
def test_what_a_reported_phase_stands_for(name, phase):
    assert phase_of(name) == phase


def test_of_sg_and_sn_the_earlier_is_the_first_s(read):
    rows = "".join(
        f"AAA,2020-01-01T00:00:{t}Z,{p}\n" for t, p in (("10", "Pn"), ("20", "Sg"), ("18", "Sn"), ("12", "Pg"))
    )
    table = read("station,p_time,phase\n" + rows, "p.csv")
    assert list(table["flag"]) == [
        "",
        "the station's earlier S of row 4 is used",
        "",
        "the station's earlier P of row 2 is used",
    ]


def test_capital_endings_and_gzip(read):
    text = "station,p_time\nAAA,2020-01-01T00:00:00Z\n"
    assert len(read(text, "PICKS.CSV")) == 1 and len(read(gzip.compress(text.encode()), "PICKS.CSV.GZ")) == 1
    assert len(read(gzip.compress(OBS.encode()), "nlloc.obs.gz")) == 4


# Joins


def network(*extra):
    """Five stations within a few degrees, and others."""
    near = [(f"N{k}", 40.0 + k, 10.0 + k) for k in range(5)]
    found = Stations("registry.csv", default=True)
    for row, (name, lat, lon) in enumerate([*near, *extra], start=2):
        found.add(name, Station(lat, lon, 0.0, row))
    return found


def rows(*names):
    return "station,p_time\n" + "".join(f"{name},2020-01-01T00:00:{k:02d}Z\n" for k, name in enumerate(names))


def test_a_temporary_networks_station_is_not_that_of_the_registry(read):
    """Its code is another station's in the registry, a thousand kilometres away."""
    table = read(rows("IV.N0", "N1", "ZZ.S001", "7A.N2"), "p.csv", stations=network(("S001", -30.0, 100.0)))
    assert list(table["flag"][:2]) == ["", ""] and table["lat"][0] == 40.0
    assert table["flag"][2].startswith("station 'ZZ.S001' is of a temporary network, and registry.csv has another")
    assert table["flag"][3].startswith("station '7A.N2' is of a temporary network")
    assert table.attrs["by_code"] == {"1": 1}


def test_a_station_found_by_its_code_far_from_the_others_is_named(read):
    table = read(rows("IV.N0", "IV.N1", "IV.N2", "IV.N3", "IV.FAR"), "p.csv", stations=network(("FAR", -30.0, 100.0)))
    assert list(table["flag"][:4]) == [""] * 4
    assert table["flag"][4].startswith("station 'IV.FAR' was found by its code alone, 10")
    late = rows("IV.N0", "IV.N1", "IV.N2", "IV.N3", "IV.FAR").replace("00:00:04Z", "00:13:20Z")  # as a P that far away
    assert list(read(late, "p.csv", stations=network(("FAR", -30.0, 100.0)))["flag"]) == [""] * 5
    table = read(rows("N0", "N1", "N2", "N3", "FAR"), "p.csv", stations=network(("FAR", -30.0, 100.0)))
    assert list(table["flag"]) == [""] * 5  # the file names no network: the list's station is the one


def test_a_code_that_several_networks_bear_is_named(read):
    found = Stations("list.txt", networks=True)
    for name, lat in (("IU.ANMO", 34.9), ("ANMO", 34.9), ("ZZ.ANMO", 10.0), ("ANMO", 10.0)):
        found.add(name, Station(lat, -106.5, 0.0, 2))
    table = read(rows("IU.ANMO", "ANMO"), "p.csv", stations=found)
    assert table["flag"][0] == "" and "has station 'ANMO' at 34.9000, -106.5000 (row 2) and 10.0000" in table["flag"][1]


def test_an_event_with_a_bad_place_does_not_stop_the_others(read):
    text = (
        "event,station,lat,lon,p_time\na,AAA,1,2,2020-01-01T00:00:00Z\na,AAA,5,2,2020-01-01T00:00:01Z\n"
        "b,AAA,1,2,2020-01-01T00:00:00Z\n"
    )
    with pytest.raises(ValueError, match="row 3 .station AAA. is at 5, 2, but row 2"):
        read(text, "p.csv")
    with pytest.warns(UserWarning, match="event a is not used: .*row 3"):
        table = read(text, "p.csv", on_failure="warn")
    assert [flag[:25] for flag in table["flag"]] == ["the event is not used: /t"[:25]] * 2 + [""]
    with pytest.raises(ValueError, match="on_failure"):
        read(text, "p.csv", on_failure="flag")
