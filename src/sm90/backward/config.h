// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Tile sizes of the backward kernels.
#pragma once

#include "ffpa/tensor.h"
#include "sm90/backward/dkdv_memory.h"
#include "sm90/backward/dq_memory.h"

namespace ffpa::sm90 {

// Columns of a gradient that a warpgroup (dkdv) or a CTA (dq) accumulates: half of the head dim,
// rounded up to what one copy moves. At 320 and 448 the halves overlap by 64 columns, which are
// computed twice and stored once.
constexpr int gradient_columns(int head_dim) { return (head_dim / 64 + 1) / 2 * 64; }

// A pair of CTAs owns 64 keys of a KV head and walks the blocks of 64 queries of all query heads of
// its group. CTA 0 holds K: S^T = K Q^T, P^T, dV += P^T dO. CTA 1 holds V: dP^T = V dO^T, dS^T =
// P^T (dP^T - delta) with the P^T that CTA 0 sends, dK += dS^T Q. Inside a CTA two warpgroups take
// turns: each computes the scores of every other block, and its half of the gradient's columns over
// all blocks. Operands come as chunks, one ring slot each:
//   score chunk [64 queries x 128 columns], value chunk [32 queries x own columns].
template <int kHeadDim_, DType kDType_>
struct DkdvConfig {
  using SharedMemory = DkdvSharedMemory<DkdvConfig>;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr DType kDType = kDType_;
  static constexpr int kBlockKeys = 64, kBlockQueries = 64;
  static constexpr int kPanels = kHeadDim / 64;
  static constexpr int kColumns = gradient_columns(kHeadDim);
  FFPA_HD static constexpr int first_column(int w) { return w == 0 ? 0 : kHeadDim - kColumns; }

  static constexpr int kStages = 4;
  static constexpr int kKPass = (kPanels + 1) / 2;  // score chunks of a block
  static constexpr int kVChunks = 2;                // value chunks of a block
  static constexpr int kValueRows = kBlockQueries / kVChunks;
  static constexpr uint32_t kScoreBytes = 64 * 128 * 2;
  static constexpr uint32_t kValueBytes = kValueRows * kColumns * 2;
  static constexpr uint32_t kSlotBytes = 16384;
  static_assert(kScoreBytes <= kSlotBytes && kValueBytes <= kSlotBytes);

  static constexpr int kThreads = 384;  // two consumer warpgroups, one with two producer warps
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 240;
};

// dQ = dS K from the stored tiles: a CTA owns 128 query rows and half of the columns.
template <int kHeadDim_, DType kDType_>
struct DqConfig {
  using SharedMemory = DqSharedMemory<DqConfig>;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr DType kDType = kDType_;
  static constexpr int kBlockQueries = 128, kBlockKeys = 64;
  static constexpr int kColumns = gradient_columns(kHeadDim);
  FFPA_HD static constexpr int first_column(int half) {
    return half == 0 ? 0 : kHeadDim - kColumns;
  }
  static constexpr int kStages = 4;
  static constexpr uint32_t kKeyBytes = kBlockKeys * kColumns * 2;

  static constexpr int kThreads = 384;
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;
};

// The smallest instance that holds a head dim; 0: none.
constexpr int backward_head_dim_tile(int64_t head_dim) {
  for (int tile : {320, 384, 448, 512}) {
    if (head_dim <= tile) return tile;
  }
  return 0;
}

}  // namespace ffpa::sm90
