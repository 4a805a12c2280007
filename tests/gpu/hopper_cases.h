// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/case.h"

namespace ffpa::test {

struct GpuCase {
  std::string name;
  std::function<std::string()> run;  // returns what went wrong
};

// Forward calls on the Hopper backend against the oracle.
std::vector<GpuCase> hopper_cases();

}  // namespace ffpa::test
