// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cuda_runtime_api.h>

#include "sm90/forward/config.h"
#include "sm90/forward/params.h"
#include "sm90/forward/rows_config.h"

namespace ffpa::sm90 {

// Defined in instances/, one translation unit each.
template <class Config>
cudaError_t launch_forward(const ForwardParams& params, int ctas, cudaStream_t stream);

}  // namespace ffpa::sm90
