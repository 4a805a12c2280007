// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cuda_runtime_api.h>

#include "sm80/params.h"

namespace ffpa::sm80 {

// Enqueues one operation with tiles of shape kTileShapes[kIndex]. Instantiated in instance.cu.in.
template <class T, int kIndex, Op kOp>
cudaError_t launch_attention(const Params& p, bool general, int64_t blocks, cudaStream_t stream);

}  // namespace ffpa::sm80
