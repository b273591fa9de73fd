# SPDX-License-Identifier: MIT
"""Counts the test cases of Bazel runs: prints `N passed, N failed` (and skipped ones) last.

    ./bazelw run //tools/ci:summary -- EVENTS.json ...

EVENTS.json is what `bazel test --build_event_json_file` wrote. Each test target's cases are read
from its test.xml; a target that wrote none, did not build or timed out counts as one failure. The
exit code is 0 only when something ran and nothing failed.
"""

import json
import pathlib
import sys
import urllib.parse
from typing import NamedTuple
from xml.etree import ElementTree


class Counts(NamedTuple):
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other):
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


def count_cases(xml_text):
    """The cases of one test.xml, as GoogleTest, pytest or Bazel itself write it."""
    counts = Counts()
    for case in ElementTree.fromstring(xml_text).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            counts += Counts(failed=1)
        elif case.find("skipped") is not None or case.get("result") in ("skipped", "suppressed"):
            counts += Counts(skipped=1)
        else:
            counts += Counts(passed=1)
    return counts


def count_result(status, xml_text):
    """One test action: its cases; at least one failure when Bazel says that it did not pass."""
    counts = Counts()
    if xml_text is not None:
        try:
            counts = count_cases(xml_text)
        except ElementTree.ParseError:
            counts = Counts(failed=1)
    passed = status in ("PASSED", "FLAKY")
    if not passed and counts.failed == 0:
        counts += Counts(failed=1)
    if passed and counts == Counts():
        counts += Counts(passed=1)
    return counts


def read_xml(outputs):
    """The text of test.xml among a test's outputs; None when there is none."""
    for output in outputs:
        if output.get("name") == "test.xml" and output.get("uri", "").startswith("file://"):
            path = pathlib.Path(urllib.parse.unquote(output["uri"].removeprefix("file://")))
            if path.exists():
                return path.read_text(encoding="utf-8", errors="replace")
    return None


def count_events(lines):
    """All tests of one Bazel run."""
    counts = Counts()
    for line in lines:
        event = json.loads(line)
        if "testResult" in event:
            result = event["testResult"]
            counts += count_result(
                result.get("status"), read_xml(result.get("testActionOutput", []))
            )
        elif "testSummary" in event and event["testSummary"].get("overallStatus") in (
            "NO_STATUS",
            "FAILED_TO_BUILD",
        ):
            print("not built:", event["id"]["testSummary"]["label"])
            counts += Counts(failed=1)
    return counts


def main():
    total = Counts()
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as lines:
            counts = count_events(lines)
        print(f"{pathlib.Path(path).stem}: {counts}")
        total += counts
    if total.skipped:
        print(f"{total.skipped} skipped")
    print(f"{total.passed} passed, {total.failed} failed")
    sys.exit(0 if total.passed and not total.failed else 1)


if __name__ == "__main__":
    main()
