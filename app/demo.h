// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include "arguments.h"

namespace ffpa::app {

// The main job: one training step of attention on a packed batch, timed and compared with float64.
// Returns the exit code.
int demo(Shape shape);

}  // namespace ffpa::app
