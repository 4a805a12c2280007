// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cuda_runtime_api.h>

#include "sm90/backward/config.h"
#include "sm90/backward/params.h"

namespace ffpa::sm90 {

// Instantiated in files of their own: dkdv_instance.cu.in, dq_instance.cu.in.
template <class Config>
cudaError_t launch_dkdv(const DkdvParams& params, int pairs, cudaStream_t stream);
// `tiles`: most items of the list, times the heads of the chunk.
template <class Config>
cudaError_t launch_dq(const DqParams& params, int64_t tiles, cudaStream_t stream);

}  // namespace ffpa::sm90
