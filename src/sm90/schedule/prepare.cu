// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "sm90/schedule/block_scan.cuh"
#include "sm90/schedule/prepare.h"

namespace ffpa::sm90 {
namespace {

constexpr int kThreads = 1024;
static_assert(kThreads == kTileClasses, "a thread scans a class");

// Calls `visit(SequenceTile, its class)` for all tiles, by all threads.
template <class Visit>
__device__ void for_each_tile(const PrepareParams& p, int* ends, int* warp_sums, Visit visit) {
  // Packed: and the rows behind the last offset.
  const int sequences = p.sequences.batch + (p.sequences.cu_q ? 1 : 0);
  for (int first = 0; first < sequences; first += kThreads) {
    const int mine = first + threadIdx.x;
    const int tiles = mine < sequences ? ceil_div(p.sequences.at(mine).rows_q, p.block_m) : 0;
    ends[threadIdx.x] = block_scan(tiles, warp_sums);
    __syncthreads();
    for (int i = threadIdx.x; i < ends[kThreads - 1]; i += kThreads) {
      int low = 0, high = kThreads - 1;  // the first sequence that ends behind tile i
      while (low < high) {
        const int middle = (low + high) / 2;
        if (ends[middle] > i) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      const SequenceTile t{first + low, i - (low > 0 ? ends[low - 1] : 0)};
      const SequenceRows s = p.sequences.at(t.sequence);
      const Visibility v{s.len_q, s.len_k, p.window_left, p.window_right};
      const int blocks = key_tiles(v, t.tile * p.block_m, p.block_m, p.block_n).count();
      visit(t, kTileClasses - 1 - min(blocks >> p.class_shift, kTileClasses - 1));
    }
    __syncthreads();
  }
}

// One CTA: counts the tiles of each class, then gives each its place. The order inside a class
// varies from run to run; results do not depend on it.
__global__ void __launch_bounds__(kThreads) prepare_kernel(const PrepareParams p) {
  __shared__ int ends[kThreads], warp_sums[32], next[kTileClasses];
  next[threadIdx.x] = 0;
  __syncthreads();
  for_each_tile(p, ends, warp_sums,
                [&](SequenceTile, int tile_class) { atomicAdd(&next[tile_class], 1); });
  const int mine = next[threadIdx.x];
  const int end = block_scan(mine, warp_sums);
  next[threadIdx.x] = end - mine;
  if (threadIdx.x == kThreads - 1) *p.count = min(end, p.capacity);
  __syncthreads();
  for_each_tile(p, ends, warp_sums, [&](SequenceTile t, int tile_class) {
    const int at = atomicAdd(&next[tile_class], 1);
    if (at < p.capacity) p.list[at] = t;  // bad offsets may name more tiles than there are rows
  });
}

}  // namespace

cudaError_t prepare_work_list(const PrepareParams& params, cudaStream_t stream) {
  prepare_kernel<<<1, kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace ffpa::sm90
