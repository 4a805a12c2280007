// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include "core/problem.h"

namespace ffpa {

// Compute capability * 10 of the device of the call; 0 for the CPU.
Status device_sm(const Problem& p, int* sm);

}  // namespace ffpa
