// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Attention straight from the formulas of include/ffpa/attention.h, with the N x N matrices of one
// (sequence, head) at a time in memory. Shares no code with any backend.
#pragma once

#include <cstdint>
#include <vector>

#include "ffpa/attention.h"
#include "reference/array.h"

namespace ffpa::reference {

// A call in float64. Arrays have the shapes of the tensors of the same name.
struct Call {
  bool packed = false;
  int64_t batch = 0, heads_q = 0, heads_kv = 0, head_dim = 0, head_dim_v = 0;
  int64_t seqlen_q = 0, seqlen_k = 0;       // dense: the lengths; packed: max_seqlen
  std::vector<int64_t> begin_q, begin_k;    // packed: first row of each sequence
  std::vector<int64_t> length_q, length_k;  // rows in use of each sequence

  Array q, k, v;
  Array mask;  // may be undefined, as all below
  bool mask_is_bool = false;
  Array alibi_slopes, sink;
  double softmax_scale = 1, softcap = 0;
  int64_t window_left = -1, window_right = -1;
  double dropout_p = 0;
  uint64_t dropout_seed = 0, dropout_offset = 0;

  Array dout, dlse;  // no dout: no gradients
};

// dsink and dmask are defined where there is a sink and an additive mask.
struct Result {
  Array out, lse;
  Array dq, dk, dv, dsink, dmask;
};

Call read_call(const AttentionInputs& inputs, const AttentionOptions& options, const Tensor& dout,
               const Tensor& dlse);

// The oracle.
Result attention(const Call& call);

// The low-precision peer whose error sets tolerances: the same formulas in the way of torch's math
// SDPA. Q and K are scaled by sqrt(softmax_scale), sums are float32, and every intermediate result
// is stored in `dtype`. As in attention.h, delta comes from the stored `out`.
Result math_attention(const Call& call, DType dtype);

}  // namespace ffpa::reference
