// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

namespace ffpa::sm90 {

// Inclusive sum over a block of 1024 threads. `warp_sums`: 32 ints of shared memory.
__device__ inline int block_scan(int x, int* warp_sums) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int d = 1; d < 32; d *= 2) {
    const int below = __shfl_up_sync(~0u, x, d);
    if (lane >= d) x += below;
  }
  if (lane == 31) warp_sums[warp] = x;
  __syncthreads();
  if (warp == 0) {
    int sum = warp_sums[lane];
    for (int d = 1; d < 32; d *= 2) {
      const int below = __shfl_up_sync(~0u, sum, d);
      if (lane >= d) sum += below;
    }
    warp_sums[lane] = sum;
  }
  __syncthreads();
  if (warp > 0) x += warp_sums[warp - 1];
  __syncthreads();
  return x;
}

}  // namespace ffpa::sm90
