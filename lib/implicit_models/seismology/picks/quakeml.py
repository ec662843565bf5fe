"""Picks from QuakeML (1.2, and the versions before it), event by event, so that a catalogue of any length fits.

A phase is what the preferred origin's arrival says; the pick's own is tentative and stands where there is no arrival.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

from implicit_models.seismology.leap_seconds import LeapSecond, utc_moment
from implicit_models.seismology.picks.catalogue_rows import event_names, no_weight, standard_deviation
from implicit_models.seismology.picks.pick import Pick


def is_quakeml(path: Path) -> bool:
    with path.open("rb") as file:
        return b"quakeml" in file.read(600).lower()


def read_quakeml(path: Path) -> list[Pick]:
    """Picks of every event; `row` is the number of the pick in its event.

    Raises:
        ImportError: lxml, which obspy brings, is not installed.
        ValueError: no well-formed XML, with the line.
    """
    try:
        from lxml import etree
    except ImportError as error:
        raise ImportError(f"reading {path} needs obspy (the [seismology] extra); CSV does not") from error
    events = []
    try:
        for _, element in etree.iterparse(str(path), tag="{*}event", resolve_entities=False):
            events.append((element.get("publicID", ""), _event_picks(element)))
            element.clear()
    except etree.XMLSyntaxError as error:
        raise ValueError(f"{path} is no whole QuakeML file: {error}") from None
    picks = []
    for name, (_, own) in zip(event_names([name for name, _ in events]), events, strict=True):
        if not own:
            warnings.warn(f"{path}: event {name} has no picks", stacklevel=3)
        for pick in own:
            pick.event = name
        picks += own
    return picks


def _event_picks(event: Any) -> list[Pick]:
    children: dict[str, list[Any]] = {}
    for child in event:
        children.setdefault(_local(child), []).append(child)
    origins = children.get("origin", [])
    preferred = _text(children.get("preferredOriginID", []))
    origin = next((o for o in origins if o.get("publicID") == preferred), origins[0] if origins else None)
    arrivals = {}
    for child in origin if origin is not None else ():
        if _local(child) == "arrival":
            fields = {_local(part): (part.text or "").strip() for part in child}
            arrivals[fields.get("pickID", "")] = fields
    return [
        _pick(element, arrivals.get(element.get("publicID", "")), row)
        for row, element in enumerate(children.get("pick", []), start=1)
    ]


def _pick(element: Any, arrival: dict[str, str] | None, row: int) -> Pick:
    parts = {_local(part): part for part in element}
    stream = parts.get("waveformID")
    code = (stream.get("stationCode") or "").strip() if stream is not None else ""
    network = (stream.get("networkCode") or "").strip() if stream is not None else ""
    time, angle = (_quantity(parts.get(name)) for name in ("time", "backazimuth"))
    pick = Pick(
        event="",
        station=f"{network}.{code}" if network and code else code,
        p_time=math.nan,
        phase=(arrival or {}).get("phase") or _text([parts["phaseHint"]] if "phaseHint" in parts else []),
        row=row,
        sigma_s=standard_deviation(_number(time.get("uncertainty"))),
    )
    try:
        pick.p_time = utc_moment(time["value"])
    except LeapSecond as moment:
        pick.p_time, pick.leap = moment.seconds, True
    except (KeyError, ValueError):
        pick.flag = "the pick has no time"
    if not code:
        pick.flag = "the pick has no station"
    elif not pick.flag and _text([parts["evaluationStatus"]] if "evaluationStatus" in parts else []) == "rejected":
        pick.flag = "the catalogue rejects the pick"
    weight = (arrival or {}).get("timeWeight")
    if not pick.flag and weight and _number(weight) == 0:
        pick.flag = no_weight("0")
    sigma_baz, baz = standard_deviation(_number(angle.get("uncertainty"))), _number(angle.get("value"))
    if math.isfinite(baz):
        own = arrival is None or "backazimuthResidual" in arrival or bool(_number(arrival.get("backazimuthWeight")) > 0)
        if own or not math.isnan(sigma_baz):
            pick.baz, pick.sigma_baz = baz % 360, sigma_baz
    return pick


def _local(element: Any) -> str:
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""  # a comment has a function there


def _text(elements: list[Any]) -> str:
    return (elements[0].text or "").strip() if elements else ""


def _quantity(element: Any) -> dict[str, str]:
    return {} if element is None else {_local(part): (part.text or "").strip() for part in element}


def _number(text: str | None) -> float:
    try:
        return float(text) if text else math.nan
    except ValueError:
        return math.nan
