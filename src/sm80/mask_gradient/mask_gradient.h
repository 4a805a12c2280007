// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cuda_runtime_api.h>

#include "core/problem.h"

namespace ffpa::sm80 {

// The gradient of an additive mask, in the mask's own shape, summed over broadcast dimensions in a
// fixed order. `delta` [heads_q][total_q].
Status launch_mask_gradient(const Problem& p, const float* delta, cudaStream_t stream);

}  // namespace ffpa::sm80
