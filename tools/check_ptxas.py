#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Runs a compiler command and fails where ptxas gave up on a Hopper kernel.

usage: check_ptxas.py MAX_SPILL_BYTES COMMAND...

C75xx and C7602 say that wgmma was serialised or setmaxnreg ignored, which costs 3-6x; more than
MAX_SPILL_BYTES of spill stores, that a main loop spills.
"""

import re
import subprocess
import sys


def main():
    limit, command = int(sys.argv[1]), sys.argv[2:]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    faults = re.findall(r".*\(?C7(?:507|508|510|512|513|514|515|602)\)?.*", result.stdout)
    for stores in re.findall(r"(\d+) bytes spill stores", result.stdout):
        if int(stores) > limit:
            faults.append(f"{stores} bytes of spill stores, at most {limit} are allowed")
    if result.returncode != 0 or faults or "warning" in result.stdout:
        sys.stderr.write(result.stdout)
    for fault in faults:
        sys.stderr.write(f"check_ptxas: {fault}\n")
    return result.returncode or bool(faults)


if __name__ == "__main__":
    sys.exit(main())
