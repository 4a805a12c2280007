// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Lists the query tiles of all sequences, those with most key blocks first. One CTA: cu_seqlens is
// read here and nowhere else. Tiles of one length stand in no particular order; no result depends
// on it.
#pragma once

#include "sm90/forward/config.h"
#include "sm90/forward/params.h"
#include "sm90/forward/work.h"

namespace ffpa::sm90 {

inline constexpr int kListThreads = 1024;
// Lengths that are told apart, in key blocks; longer tiles count as the longest.
inline constexpr int kListLengths = 1024;

__device__ inline QueryTile sequence_of(const ListParams& p, int b) {
  QueryTile t{b, 0, 0, p.seqlen_q, p.seqlen_k, 0};
  if (p.cu_seqlens_q) {
    t.q_begin = p.cu_seqlens_q[b];
    t.k_begin = p.cu_seqlens_k[b];
    t.len_q = p.cu_seqlens_q[b + 1] - t.q_begin;
    t.len_k = p.cu_seqlens_k[b + 1] - t.k_begin;
  }
  return t;
}

// Calls f(tile, length) for every tile; a warp takes a sequence.
template <class F>
__device__ void for_each_tile(const ListParams& p, F f) {
  for (int b = threadIdx.x / 32; b < p.batch; b += kListThreads / 32) {
    QueryTile t = sequence_of(p, b);
    for (t.q_row = threadIdx.x % 32 * Forward512::kBlockM; t.q_row < t.len_q;
         t.q_row += 32 * Forward512::kBlockM) {
      const Visibility v{t.len_q, t.len_k, p.window_left, p.window_right};
      const int blocks =
          key_tiles(v, t.q_row, Forward512::kBlockM, Forward512::kBlockN).count();
      f(t, min(blocks, kListLengths - 1));
    }
  }
}

__global__ void __launch_bounds__(kListThreads) list_work(const ListParams p) {
  __shared__ int next[kListLengths];  // of each length: count, then where its next tile goes
  __shared__ int warp_sums[kListThreads / 32];
  static_assert(kListThreads == kListLengths, "a thread owns a length");
  const int t = threadIdx.x, length = kListLengths - 1 - t;  // longest first
  next[t] = 0;
  __syncthreads();
  for_each_tile(p, [&](const QueryTile&, int l) { atomicAdd(&next[l], 1); });
  __syncthreads();

  // Exclusive prefix sum over falling lengths.
  const int count = next[length];
  int sum = count;
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(~0u, sum, d);
    if (t % 32 >= d) sum += other;
  }
  if (t % 32 == 31) warp_sums[t / 32] = sum;
  __syncthreads();
  int before = 0;
  for (int w = 0; w < t / 32; ++w) before += warp_sums[w];
  next[length] = before + sum - count;
  if (t == kListThreads - 1) *p.list.count = before + sum;
  __syncthreads();

  for_each_tile(p, [&](const QueryTile& tile, int l) {
    p.list.tiles[atomicAdd(&next[l], 1)] = tile;
  });
}

}  // namespace ffpa::sm90
