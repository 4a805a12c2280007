// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cuda_runtime_api.h>

#include "core/problem.h"
#include "sm80/params.h"

namespace ffpa::sm80 {

// out and lse of a forward whose keys were split, from its partial results, in the order of the
// splits. Adds the sink.
cudaError_t launch_combine(const Problem& p, const Partials& partials, cudaStream_t stream);

}  // namespace ffpa::sm80
