"""Whether times of bars are those of New York's sessions: a wrong zone, or bars stamped at their end, are found.

A wrong time zone moves the opening, and with it every window, silently. Sessions vote, and the votes are counted by
calendar week, since clocks change on different weekends in different zones.
"""

from __future__ import annotations

import numpy as np

from data_gen.market.bar_files import DAY, BarsError

# Share of a session's volume that must lie better at another time before the time zone is called wrong.
CLEARLY = 0.02
# Least volume a minute, relative to the session's, of minutes that a shift would bring into it: extended hours have far
# less.
SESSION_LIKE = 0.25
# Least ratio of the volume of the opening minute to that of the minute before.
JUMP = 5.0
# Shifts that time zones can be wrong by, minutes, the smallest first.
ZONE_SHIFTS = tuple(sorted(range(-14 * 60, 14 * 60 + 1, 30), key=abs))


def check_zone(source: str, time: np.ndarray, calendar, weight: np.ndarray) -> None:
    """Refuse times that another shift fits clearly better, judged session by session.

    Clocks change over a weekend, on different ones in different zones, so that a zone may be wrong for a single week:
    sessions vote, and the votes are counted by calendar week.

    Args:
        source: for the message.
        time: (N,) starts of the bars.
        calendar: sessions around them.
        weight: (N,) volumes, or ones.

    Raises:
        BarsError: with the shift and the first session that it is found in.
    """
    day = np.maximum(np.searchsorted(calendar.opens, time + np.timedelta64(12, "h"), side="right") - 1, 0)
    offset = (time - calendar.opens[day]).astype(np.int64) // 60
    near = (offset >= -DAY) & (offset < 2 * DAY)
    # volume[d, DAY + m]: of session d's minute m, counted from its opening
    width = 3 * DAY
    volume = np.bincount(
        day[near] * width + offset[near] + DAY, weight[near], minlength=len(calendar.dates) * width
    ).reshape(-1, width)
    week = (calendar.dates.astype("datetime64[D]").astype(np.int64) + 3) // 7  # the epoch was a Thursday
    _check_minutes(source, calendar, volume, week)
    _check_half_hours(source, calendar, volume, week)


def _ends(volume: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last minute with volume of every session, counted from its opening."""
    traded = volume > 0
    return traded.argmax(axis=1) - DAY, volume.shape[1] - 1 - traded[:, ::-1].argmax(axis=1) - DAY


def _check_half_hours(source: str, calendar, volume: np.ndarray, week: np.ndarray) -> None:
    """Refuse when another half hour puts clearly more of the volume into two sessions of a week, or into all there are.

    The minutes that the shift brings in must trade like a session's: otherwise a session that merely begins late would
    be called shifted for the sake of its extended hours. A single session is enough where its first and its last bar
    are both off by the shift.
    """
    total = volume.sum(axis=1)
    judged = np.flatnonzero(total > 0)
    cumulated = np.concatenate([np.zeros((len(volume), 1)), volume.cumsum(axis=1)], axis=1)

    def inside(days: np.ndarray, shift: int) -> np.ndarray:
        start = DAY - shift
        return cumulated[days, start + calendar.minutes[days]] - cumulated[days, start]

    shares = np.stack([inside(judged, shift) for shift in ZONE_SHIFTS], axis=1) / total[judged, None]
    best = (shares >= shares.max(axis=1, keepdims=True) - 1e-9).argmax(axis=1)
    suspects = np.flatnonzero(shares[np.arange(len(judged)), best] > shares[:, 0] + CLEARLY)
    votes = [
        k
        for k in suspects
        if _trades_like_a_session(volume[judged[k]], calendar.minutes[judged[k]], ZONE_SHIFTS[best[k]], total[judged])
    ]
    if not votes:
        return
    votes = np.array(votes)
    first, last = _ends(volume[judged[votes]])
    shift = np.array(ZONE_SHIFTS)[best[votes]]
    common = np.bincount(best[votes], minlength=len(ZONE_SHIFTS))
    both = np.maximum(abs(first + shift), abs(last + shift - calendar.minutes[judged[votes]] + 1)) <= 5
    for each in np.unique(week[judged[votes]]):
        chosen = week[judged[votes]] == each
        if not (chosen.sum() > 1 or both[chosen].any() or len(votes) == len(judged)):
            continue
        days = judged[votes[chosen]]
        pooled = np.array([inside(days, shift).sum() for shift in ZONE_SHIFTS]) / total[days].sum()
        # a session that begins late fits several shifts: take the one of most sessions, then the smallest
        k = int(np.where(pooled >= pooled.max() - 1e-9, common, -1).argmax())
        if k:
            raise BarsError(
                f"{source}: in {len(days)} session{'s' * (len(days) > 1)} from {calendar.dates[days[0]]} only "
                f"{pooled[0]:.0%} of the volume lies inside the session, 09:30 to 16:00 New York time; "
                f"{_shift(ZONE_SHIFTS[k])} would give {pooled[k]:.0%}: is the time zone right?"
            )


def _trades_like_a_session(volume: np.ndarray, length: int, shift: int, totals: np.ndarray) -> bool:
    """Whether the minutes that a shift brings into a session trade like those that it keeps there.

    Volumes are capped at the median minute, since one print after the close may be a tenth of the day.
    """
    minute = np.arange(len(volume)) - DAY
    now, then = (minute >= 0) & (minute < length), (minute + shift >= 0) & (minute + shift < length)
    kept, gained = volume[now & then], volume[then & ~now]
    if not kept.any():  # nothing to compare with inside this session: compare with the other ones
        return bool(gained.sum() >= SESSION_LIKE * np.median(totals))
    cap = np.median(kept[kept > 0])
    return bool(np.minimum(gained, cap).mean() >= SESSION_LIKE * np.minimum(kept, cap).mean())


def _check_minutes(source: str, calendar, volume: np.ndarray, week: np.ndarray) -> None:
    """Refuse when most sessions of a week begin and end equally late or early, or open a minute beside the opening.

    Without extended hours the first and the last bar tell. With them the opening does: its minute trades many times
    what the one before does.
    Absent bars can look alike in one or two sessions, so that these count only when they are nearly whole.
    """
    length = calendar.minutes
    days = np.arange(len(volume))
    within = volume[:, DAY : DAY + length.max()]
    judged = within.any(axis=1)
    first, last = _ends(volume)
    late = np.where(first == last - length + 1, first, 0)
    traded = np.where(within > 0, within, np.nan)
    median = np.full(len(volume), np.inf)
    median[judged] = np.nanmedian(traded[judged], axis=1)
    before, opening, after = volume[:, DAY - 1], volume[:, DAY], volume[:, DAY + 1]
    opens_late = (after > JUMP * opening) & (after >= median) & (volume[days, DAY + length] > 0)
    opens_early = (before > JUMP * volume[:, DAY - 2]) & (before >= median) & (before > opening)
    late = np.where(late == 0, opens_late * 1 - opens_early * 1, late)
    late[late % 30 == 0] = 0  # left to the half hours
    cumulated = np.concatenate([np.zeros((len(volume), 1), int), (volume > 0).cumsum(axis=1)], axis=1)
    begin = np.clip(DAY + late, 0, 2 * DAY)
    whole = cumulated[days, begin + length] - cumulated[days, begin] >= 0.95 * length
    for each in np.unique(week[judged & (late != 0)]):
        chosen = judged & (week == each)
        values, counts = np.unique(late[chosen], return_counts=True)
        k = int(values[counts.argmax()])
        votes = days[chosen & (late == k)]
        enough = len(votes) > 2 or (whole[votes].all() and (len(votes) == 2 or judged.sum() == 1))
        if k and 4 * len(votes) >= 3 * chosen.sum() and enough:
            hint = "stamped at their end" if k == 1 else "delayed" if k > 0 else "early"
            raise BarsError(
                f"{source}: {len(votes)} of the {chosen.sum()} sessions of a week, from {calendar.dates[votes[0]]},"
                f" begin and end {abs(k)} min {'after' if k > 0 else 'before'} 09:30 and the close, New York time;"
                f" {_shift(-k)} would fit: are the bars {hint}? Each needs the time at which it starts"
            )


def _shift(minutes: int) -> str:
    hours, rest = divmod(abs(minutes), 60)
    return ("-" if minutes < 0 else "+") + " ".join([f"{hours} h"] * (hours > 0) + [f"{rest} min"] * (rest > 0))
