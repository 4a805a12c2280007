// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cuda.h>

#include "sm90/schedule/work.h"

namespace ffpa::sm90 {

struct WaitReport;

// Where the rows of a tensor lie, in units that its tensor map counts in: row r of head h of
// sequence b of an operand with row begin + r in memory has x1 = extent - len + r and origin b *
// batch + h * head + (begin + len) * row. Both step by one row and the map's base address lies
// `extent` rows early, so x1 leaves the map exactly at the end of the sequence: TMA delivers zeros
// for rows that are not its own. Nothing of a neighbour, NaN or not, ever reaches shared memory.
struct RaggedUnits {
  int32_t extent;
  int64_t batch, head, row;

  FFPA_HD constexpr int32_t origin(int32_t b, int32_t h, int32_t end) const {
    return int32_t(b * batch + h * head + end * row);
  }
};

struct ForwardParams {
  CUtensorMap q, k, v[2];  // V for each warpgroup
  RaggedUnits q_units, k_units, v_units;
  bool v_grouped;  // the map of V counts groups of 64 columns: one copy for a whole chunk
  int32_t head_dim_v;

  Sequences sequences;
  WorkOrder order;
  const SequenceTile* list;  // packed
  const int32_t* list_count;
  uint32_t* next_item;  // items handed out past the first of each CTA; null: there are none
  int32_t window_left, window_right;

  // In units of log2: P = exp2(scale S - max), with S = cap tanh(cap_scale Q K) under a softcap.
  float scale;
  float cap_scale;    // 0: no softcap
  const float* sink;  // null: none
  int64_t sink_stride;

  void* out;
  int64_t out_batch, out_head, out_row;  // strides, elements
  bool out_aligned;                      // all rows start at multiples of 16 bytes
  float* lse;                            // null: not wanted; natural log
  int64_t lse_batch, lse_head, lse_row;

  WaitReport* report;
  uint32_t kernel;  // for the report
};

}  // namespace ffpa::sm90
