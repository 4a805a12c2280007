// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// From a block index to a tile of one sequence, on the device.
#pragma once

#include "sm80/params.h"

namespace ffpa::sm80 {

struct DeviceSequence {
  int32_t q_begin, k_begin;  // first row in a packed tensor; dense: 0
  int32_t rows_q, rows_k;    // rows that belong to it
  int32_t len_q, len_k;      // rows in use
};

__device__ __forceinline__ DeviceSequence sequence_of(const Sequences& s, int32_t batch) {
  DeviceSequence d{0, 0, s.seqlen_q, s.seqlen_k, 0, 0};
  if (s.packed) {
    d.q_begin = s.cu_q[batch];
    d.k_begin = s.cu_k[batch];
    d.rows_q = s.cu_q[batch + 1] - d.q_begin;
    d.rows_k = s.cu_k[batch + 1] - d.k_begin;
  }
  d.len_q = s.used_q ? s.used_q[batch] : d.rows_q;
  d.len_k = s.used_k ? s.used_k[batch] : d.rows_k;
  return d;
}

// The sequence that owns tile `tile` of a packed call: the last b with prefix[b] <= tile. A warp
// searches 32 places at a time.
__device__ __forceinline__ int32_t find_sequence(const int32_t* prefix, int32_t batch,
                                                 int32_t tile) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int32_t low = 0, high = batch;
  while (high - low > 1) {
    const int32_t step = (high - low + 31) / 32;
    const int32_t at = low + lane * step;
    const uint32_t before = __ballot_sync(~0u, at < high && prefix[at] <= tile);
    low += (__popc(before) - 1) * step;
    high = min_of(low + step, high);
  }
  return low;
}

struct TileWork {
  int32_t batch, head;  // head: of the own side
  int32_t first;        // own row
};

// False where this block has nothing to do. Tiles run from the last one, which has the most work
// under a causal window, to the first; heads that share keys run next to each other.
__device__ __forceinline__ bool find_work(const Params& p, int64_t block, int32_t own_heads,
                                          int32_t tile_rows, TileWork* work) {
  const Sequences& s = p.sequences;
  if (s.packed) {
    work->head = static_cast<int32_t>(block / p.tiles_bound);
    const int64_t index = block % p.tiles_bound;
    const int32_t tiles = s.prefix[s.batch];
    if (index >= tiles) return false;
    const int32_t tile = tiles - 1 - static_cast<int32_t>(index);
    work->batch = find_sequence(s.prefix, s.batch, tile);
    work->first = (tile - s.prefix[work->batch]) * tile_rows;
    return true;
  }
  const int64_t sequence_head = block / p.tiles_bound;
  work->batch = static_cast<int32_t>(sequence_head / own_heads);
  work->head = static_cast<int32_t>(sequence_head % own_heads);
  work->first = static_cast<int32_t>(p.tiles_bound - 1 - block % p.tiles_bound) * tile_rows;
  return true;
}

}  // namespace ffpa::sm80
