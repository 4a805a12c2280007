// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Small kernels around the attention kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "core/problem.h"
#include "sm80/params.h"

namespace ffpa::sm80 {

// prefix [batch + 1]: tiles of `tile_rows` own rows in all sequences before, of `heads_per_tile`
// heads each.
cudaError_t launch_prefix(const Sequences& s, bool by_query, int tile_rows, int heads_per_tile,
                          int32_t* prefix, cudaStream_t stream);

// delta [heads_q][total_q] = rowsum(dout * out) - dlse; 0 for rows without keys.
cudaError_t launch_delta(const Problem& p, float* delta, cudaStream_t stream);

// dsink = -sum exp(sink - lse) delta over all queries of a head.
cudaError_t launch_sink_gradient(const Problem& p, const float* delta, cudaStream_t stream);

}  // namespace ffpa::sm80
