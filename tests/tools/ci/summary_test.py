# SPDX-License-Identifier: MIT
"""CI's count: every way for a test to end counts as what it is."""

import json
import subprocess
import sys

import pytest
import summary
from summary import Counts

_GTEST = """<testsuites><testsuite>
<testcase name="a" status="run" result="completed"/>
<testcase name="b" status="run" result="completed"><failure message="x"/></testcase>
<testcase name="c" status="run" result="skipped"><skipped message="no GPU"/></testcase>
<testcase name="d" status="notrun" result="suppressed"/>
</testsuite></testsuites>"""
_PYTEST = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><error message="setup"/></testcase>
<testcase name="c"><skipped type="pytest.skip"/></testcase>
</testsuite></testsuites>"""


def test_cases_of_each_runner():
    assert summary.count_cases(_GTEST) == Counts(passed=1, failed=1, skipped=2)
    assert summary.count_cases(_PYTEST) == Counts(passed=1, failed=1, skipped=1)


@pytest.mark.parametrize(
    ("status", "xml", "counts"),
    [
        ("PASSED", "<testsuite><testcase name='a'/></testsuite>", Counts(passed=1)),
        ("PASSED", None, Counts(passed=1)),
        ("TIMEOUT", None, Counts(failed=1)),
        ("FAILED", "<testsuite><testcase name='a'/></testsuite>", Counts(passed=1, failed=1)),
        ("FAILED", "not xml", Counts(failed=1)),
    ],
)
def test_results(status, xml, counts):
    assert summary.count_result(status, xml) == counts


def _run(tmp_path, events):
    path = tmp_path / "events.json"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    command = [sys.executable, summary.__file__, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = result.stdout.splitlines()
    of_the_run = next(i for i, line in enumerate(lines) if line.startswith("events: "))
    return result.returncode, lines[of_the_run + 1 :]


def test_whole_run(tmp_path):
    xml = tmp_path / "a b.xml"
    xml.write_text(_PYTEST)
    output = {"name": "test.xml", "uri": "file://" + str(xml).replace(" ", "%20")}
    result = {"testResult": {"status": "FAILED", "testActionOutput": [output]}}
    assert _run(tmp_path, [{"started": {}}, result]) == (1, ["1 skipped", "1 passed, 1 failed"])
    passed = {"testResult": {"status": "PASSED"}}
    assert _run(tmp_path, [passed]) == (0, ["1 passed, 0 failed"])


def test_what_did_not_build_fails_and_nothing_is_no_success(tmp_path):
    unbuilt = {
        "id": {"testSummary": {"label": "//x"}},
        "testSummary": {"overallStatus": "FAILED_TO_BUILD"},
    }
    assert _run(tmp_path, [{"testResult": {"status": "PASSED"}}, unbuilt]) == (
        1,
        ["1 passed, 1 failed"],
    )
    assert _run(tmp_path, [{"started": {}}]) == (1, ["0 passed, 0 failed"])
