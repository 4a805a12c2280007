// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// One attention call as a test writes it down.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ffpa/attention.h"

namespace ffpa::test {

// Where the rows of q, k, v, out and their gradients lie.
enum class Layout {
  kContiguous,
  kTransposed,  // dense: BNHD memory, packed: heads first
  kFused,       // slices of one [.., heads_q + 2 heads_kv, head_dim], where shapes allow it
  kPadded,      // free elements after each row
  kOffset,      // as kPadded, and starting in the middle of a buffer
  kExpanded,    // k and v: one head, stride 0
};

enum class Mask { kNone, kBool, kFloat32, kOfInputDtype };

enum class Gradient {
  kRandom,
  kZero,
  kExpanded,  // one row of random numbers, every other stride 0
  kOnes,
};

struct Case {
  uint64_t seed = 1;
  DType dtype = DType::kFloat32;
  bool packed = false;
  std::vector<int32_t> lengths_q = {32};  // one a sequence; dense: all the same
  std::vector<int32_t> lengths_k = {};    // empty: as lengths_q
  int64_t heads_q = 1, heads_kv = 1;
  int64_t head_dim = 64, head_dim_v = 0;  // 0: as head_dim

  AttentionOptions options;
  bool sink = false;
  int alibi_rank = 0;  // 0: no slopes
  Mask mask = Mask::kNone;
  std::vector<int> mask_broadcast;  // dimensions of [batch, head, query, key] of size 1
  int mask_rank = 4;                // leading dimensions left out
  bool mask_hides_keys = true;      // some entries -inf
  std::vector<int32_t> used_q, used_k;
  int64_t extra_max_seqlen = 0;

  Layout layout = Layout::kContiguous;
  Gradient dout = Gradient::kRandom;
  bool dlse = false;
  bool constant_v = false;
  bool v_is_k = false;
  double q_size = 1, k_size = 1, v_size = 1;  // standard deviations
  bool no_dq = false, no_dk = false, no_dv = false, no_dsink = false, no_dmask = false;
  bool dmask_float32 = false;
  bool no_lse = false;  // the forward alone

  int64_t batch() const { return static_cast<int64_t>(lengths_q.size()); }
  int64_t v_dim() const { return head_dim_v ? head_dim_v : head_dim; }
  const std::vector<int32_t>& k_lengths() const {
    return lengths_k.empty() ? lengths_q : lengths_k;
  }
};

// Packed with these lengths; dense with `batch` sequences.
Case packed_case(DType dtype, std::vector<int32_t> lengths_q, std::vector<int32_t> lengths_k,
                 int64_t heads_q, int64_t heads_kv, int64_t head_dim, bool causal = false);
Case dense_case(DType dtype, int64_t batch, int32_t nq, int32_t nk, int64_t heads_q,
                int64_t heads_kv, int64_t head_dim, bool causal = false);

// One line that tells the case from others.
std::string describe(const Case& c);

}  // namespace ffpa::test
