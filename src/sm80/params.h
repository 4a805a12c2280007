// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// What a kernel gets: plain data, passed by value.
#pragma once

#include <cstdint>

#include "plan/visibility.h"
#include "sm80/config.h"

namespace ffpa::sm80 {

// [batch, head, row, column], strides in elements, unit column stride.
struct Operand {
  const void* data;
  int64_t batch_stride, head_stride, row_stride;
  int32_t width;
  bool aligned;  // every row starts at a multiple of 16 bytes
};

// [batch, head, row] floats.
struct Statistics {
  float* data;  // null: not given
  int64_t batch_stride, head_stride, row_stride;
};

// Where sequences lie. `prefix` [batch + 1]: tiles of own rows in all sequences before (packed).
struct Sequences {
  bool packed;
  int32_t batch, seqlen_q, seqlen_k;  // packed: the longest
  const int32_t *cu_q, *cu_k, *used_q, *used_k;
  const int32_t* prefix;
};

enum class MaskKind : uint8_t { kNone, kBool, kFloat32, kFloat16, kBFloat16 };

// Everything between products and probabilities besides scale and window.
struct Extras {
  float softcap;  // 0: off
  const float* alibi_slopes;
  int64_t alibi_batch_stride, alibi_head_stride;
  const void* mask;
  MaskKind mask_kind;
  int64_t mask_batch_stride, mask_head_stride, mask_row_stride, mask_column_stride;
  bool dropout;
  uint32_t drop_below;  // keep P iff the drawn number is at least this
  float keep_scale;     // 1 / (1 - p)
  uint64_t seed, offset;
};

// Results of a forward whose key blocks are divided among `splits` blocks of the grid: normalised
// out [splits][heads_q][total_q][width] and lse [splits][heads_q][total_q], without the sink.
struct Partials {
  int32_t splits;  // 1: none
  float *out, *lse;
};
inline constexpr int kMaxSplits = 64;

struct Params {
  Sequences sequences;
  int32_t window_left, window_right;
  int32_t heads_q, heads_kv, group;
  // Query heads that are rows of one tile: own row r is query r / heads_per_tile of head
  // r % heads_per_tile. 1, or `group` for few queries.
  int32_t heads_per_tile;
  int64_t tiles_bound;  // dense: tiles of own rows; packed: at least those

  Operand own1, own2, streamed1, streamed2, values;
  Operand result;
  float softmax_scale;
  float result_scale;
  const float* sink;
  int64_t sink_stride;
  Statistics lse;      // forward: written; backward: read
  const float* delta;  // [heads_q][total_q]
  int64_t total_q;
  bool has_dlse;
  Extras extras;
  Partials partials;
  MemoryPlan memory;
};

}  // namespace ffpa::sm80
