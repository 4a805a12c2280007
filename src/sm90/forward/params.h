// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// What the host hands to the forward kernel and to the kernel that lists its work.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "sm90/wait_report.h"

namespace ffpa::sm90 {

// 64 query rows of one sequence: one work tile for every head. See WorkTile.
struct QueryTile {
  int32_t batch, q_begin, k_begin, len_q, len_k, q_row;
};

// Work list in the workspace: the count, then the tiles, those with most key blocks first.
struct WorkList {
  int32_t* count;
  QueryTile* tiles;
};

struct ListParams {
  WorkList list;
  const int32_t *cu_seqlens_q, *cu_seqlens_k;  // null: dense
  int32_t batch, seqlen_q, seqlen_k;           // dense
  int32_t window_left, window_right;
};

struct ForwardParams {
  WorkList list;
  int32_t heads, group;  // query heads, and how many of them share a K and V head
  int32_t heads_at_once;  // the order: sections of so many heads, then tiles, then heads
  bool packed;
  int32_t window_left, window_right;
  float scale_log2;   // softmax_scale * log2(e), > 0
  const float* sink;  // [heads] sink_stride apart, or null
  int64_t sink_stride;
  void* out;
  int64_t out_batch_stride, out_row_stride, out_head_stride;  // elements
  float* lse;                                                 // natural log, or null
  int64_t lse_batch_stride, lse_row_stride, lse_head_stride;
  WaitReport* report;  // host-mapped
  CUtensorMap q, k, v;
};

// Rows of a packed sequence in a ragged tensor map: row r has the coordinates (kRaggedRows - len + r,
// begin + len), both stepping by one row from a base kRaggedRows rows early. The first one leaves the
// map exactly at the sequence's end, so TMA delivers zeros for rows that are not the sequence's own:
// nothing of a neighbour, NaN or not, ever reaches shared memory. Dense tensors end by themselves.
inline constexpr int32_t kRaggedRows = 1 << 22;

}  // namespace ffpa::sm90
