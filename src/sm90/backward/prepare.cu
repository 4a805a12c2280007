// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "sm90/backward/blocks.h"
#include "sm90/backward/prepare.h"
#include "sm90/schedule/block_scan.cuh"
#include "sm90/schedule/prepare.h"

namespace ffpa::sm90 {
namespace {

constexpr int kThreads = 1024, kClasses = kTileClasses;
static_assert(kThreads == kClasses, "a thread scans a class");

// The last of sequences 0..batch (`batch`: the rows behind the last offset) that begins at padded
// tile `tile` or before.
template <class FirstRow>
__device__ int sequence_of(const Sequences& s, int tile, FirstRow first_row) {
  int low = 0, high = s.cu_q ? s.batch : s.batch - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (padded_tile(first_row(middle), middle) <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// A block of 64 threads: 64 rows of a head.
__global__ void statistics_kernel(const StatisticsParams p) {
  const int tile = blockIdx.x, head = blockIdx.y;
  const int b = sequence_of(
      p.sequences, tile, [&](int i) { return first_query_row(p.sequences, i, p.sequences.at(i)); });
  const SequenceRows s = p.sequences.at(b);
  const int first = first_query_row(p.sequences, b, s);
  const int row = 64 * (tile - padded_tile(first, b)) + int(threadIdx.x);
  float lse2 = INFINITY, delta = 0;
  if (row < s.len_q) {
    const int64_t batch = p.sequences.cu_q ? 0 : b;
    const float lse =
        p.lse[batch * p.lse_batch + head * p.lse_head + (s.q_begin + row) * p.lse_row];
    if (lse != -INFINITY) {
      lse2 = lse * 1.44269504088896f;
      delta = p.delta[head * p.delta_head + first + row];
    }
  }
  const int64_t at = head * p.stride + 64 * int64_t{tile} + threadIdx.x;
  p.lse2[at] = lse2;
  p.delta_padded[at] = delta;
}

struct KeyTile {
  SequenceTile tile;
  int blocks;  // query blocks that see it; < 0: there is no such tile
};

__device__ KeyTile key_tile(const KeyTileParams& p, int row) {
  const int b = sequence_of(
      p.sequences, row, [&](int i) { return first_key_row(p.sequences, i, p.sequences.at(i)); });
  const SequenceRows s = p.sequences.at(b);
  const int tile = row - padded_tile(first_key_row(p.sequences, b, s), b);
  if (64 * tile >= s.rows_k) return {{b, tile}, -1};
  const Visibility v{s.len_q, s.len_k, p.window_left, p.window_right};
  return {{b, tile}, chunk_blocks(v, 64 * tile, p.chunk).count()};
}

// One CTA: counts the tiles of each class of lengths, then gives each its place. The order inside a
// class varies from run to run; results do not depend on it.
__global__ void __launch_bounds__(kThreads) key_tile_kernel(const KeyTileParams p) {
  __shared__ int next[kClasses], warp_sums[32];
  __shared__ int carry;
  const auto class_of = [&](int blocks) {
    return kClasses - 1 - min(blocks >> p.class_shift, kClasses - 1);
  };
  next[threadIdx.x] = 0;
  if (threadIdx.x == 0) carry = 0;
  __syncthreads();
  for (int first = 0; first < p.key_tiles; first += kThreads) {
    const int row = first + int(threadIdx.x);
    const KeyTile t = row < p.key_tiles ? key_tile(p, row) : KeyTile{{0, 0}, -1};
    if (t.blocks >= 0) atomicAdd(&next[class_of(t.blocks)], 1);
    const int end = block_scan(max(t.blocks, 0), warp_sums);
    if (row < p.key_tiles) p.offset[row] = carry + end - max(t.blocks, 0);
    __syncthreads();
    if (threadIdx.x == kThreads - 1) carry += end;
    __syncthreads();
  }
  const int mine = next[threadIdx.x];
  const int end = block_scan(mine, warp_sums);
  next[threadIdx.x] = end - mine;
  const bool fits = carry <= p.most_tiles;
  if (threadIdx.x == kThreads - 1) *p.count = fits ? end : 0;
  if (threadIdx.x == 0 && !fits) *p.dq_count = 0;
  __syncthreads();
  for (int row = threadIdx.x; row < p.key_tiles; row += kThreads) {
    const KeyTile t = key_tile(p, row);
    if (t.blocks >= 0) p.list[atomicAdd(&next[class_of(t.blocks)], 1)] = t.tile;
  }
}

}  // namespace

cudaError_t prepare_statistics(const StatisticsParams& params, cudaStream_t stream) {
  const dim3 grid(unsigned(params.stride / 64), unsigned(params.heads_q));
  statistics_kernel<<<grid, 64, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t prepare_key_tiles(const KeyTileParams& params, cudaStream_t stream) {
  key_tile_kernel<<<1, kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace ffpa::sm90
