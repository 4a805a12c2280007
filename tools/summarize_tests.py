#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Adds up JUnit reports and prints "N passed, N failed, N skipped".

usage: summarize_tests.py REPORT...

Fails where a test failed, where a report is missing, or where it holds no test.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def counts(path):
    """(passed, failed, skipped) of one report; a report without a test counts as one failure."""
    if not pathlib.Path(path).is_file():
        return 0, 1, 0
    total = failed = skipped = 0
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0)) + int(suite.get("disabled", 0))
    return (total - failed - skipped, failed, skipped) if total else (0, 1, 0)


def main():
    passed, failed, skipped = (sum(column) for column in zip(*map(counts, sys.argv[1:])))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
