"""Time stamps of logs as Unix nanoseconds; a missing year comes from when the file was last written."""

from __future__ import annotations

import calendar
import re
from datetime import datetime, timedelta, timezone

_DAY_NS = 86_400_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)$")
_MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}


class Clock:
    """Turns stamps into Unix nanoseconds. Stamps without a zone are taken as UTC: within a log only differences count.

    `reference_ns` is when the text was last written (file time, or now for a log being followed). A stamp without a
    year gets the latest year that is not more than a day after it.
    """

    __slots__ = ("reference_ns",)

    def __init__(self, reference_ns: int) -> None:
        self.reference_ns = reference_ns

    def dated(self, year: int, month: int, day: int, time_of_day: str, zone: str | None = None) -> int | None:
        """Nanoseconds of a full date; None when there is no such moment."""
        try:
            hour, minute, second = time_of_day[:2], time_of_day[3:5], time_of_day[6:8]
            moment = datetime(year, month, day, int(hour), int(minute), int(second), tzinfo=timezone.utc)
        except (ValueError, OverflowError):
            return None
        whole = (moment - _EPOCH) // timedelta(seconds=1) * 1_000_000_000
        fraction = re.sub(r"\D", "", time_of_day[8:])[:9]
        whole += int(fraction.ljust(9, "0")) if fraction else 0
        offset = _OFFSET.match(zone) if zone else None
        if offset:
            shift = (int(offset[2]) * 60 + int(offset[3])) * 60_000_000_000
            whole += shift if offset[1] == "-" else -shift
        return max(whole, 0)

    def undated(self, month: int, day: int, time_of_day: str) -> int | None:
        """Nanoseconds of a date without a year."""
        latest = self.reference_ns + _DAY_NS
        year = (_EPOCH + timedelta(microseconds=latest // 1000)).year
        for candidate in range(year, year - 9, -1):  # nine years reach the last 29 February
            moment = self.dated(candidate, month, day, time_of_day)
            if moment is not None and moment <= latest:
                return moment
        return None

    def iso(self, text: str) -> int | None:
        """Nanoseconds of `2026-11-29T17:27:45.123Z` and its kin, of Unix seconds or milliseconds, or None."""
        match = re.match(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d+)?)\s*(Z|[+-]\d\d:?\d\d)?", text)
        if match:
            return self.dated(int(match[1]), int(match[2]), int(match[3]), match[4], match[5])
        if re.fullmatch(r"\d{10}(?:\.\d+)?", text):
            return int(float(text) * 1e9)
        return int(text) * 1_000_000 if re.fullmatch(r"\d{13}", text) else None

    def month_name(self, name: str) -> int | None:
        """Number of an English month abbreviation."""
        return _MONTHS.get(name)
