"""What all tests share: shapes written in signatures are checked, and the last lines say what was skipped and why."""

import os
import re
from collections import Counter

import shape_checks

if os.environ.get("CHECK_SHAPES", "1") != "0":
    shape_checks.install()


def pytest_terminal_summary(terminalreporter):
    """One line a reason: a newcomer sees what the data, the browser or the built book would add."""
    reasons = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[re.sub(r"^Skipped: ", "", text)] += 1
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5d}  {reason}")
