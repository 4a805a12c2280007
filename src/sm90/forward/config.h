// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Tile sizes of the forward kernels.
#pragma once

#include "ffpa/tensor.h"
#include "sm90/forward/shared_memory.h"

namespace ffpa::sm90 {

// Head dims above 256: two consumer warpgroups share 64 query rows. Each computes S and P of every
// other block of 128 keys, and its part of the columns of O over all keys. Parts are multiples of
// 64 columns, so that one copy moves a V chunk. At 320 they differ, and the tensor cores, which
// both warpgroups share, stay as busy; at 448 that spills, so both have 256 and 64 are computed
// twice. K and V reach a warpgroup as chunks, one ring slot each:
//   K chunk [kBlockN keys x 64 columns], V chunk [kBlockN / kVChunks keys x own columns].
// Smaller head dims of Q, K and V are filled up with zeros by the copies.
template <int kHeadDim_, DType kDType_>
struct ForwardConfig {
  using SharedMemory = ForwardSharedMemory<ForwardConfig>;
  static constexpr bool kSplitRows = false;  // both warpgroups have all rows
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr DType kDType = kDType_;
  static constexpr int kBlockM = 64;   // query rows of a CTA
  static constexpr int kBlockN = 128;  // keys of a block
  static constexpr int kColumns0 = (kHeadDim / 64 + 1) / 2 * 64;
  static constexpr int kColumns1 = kHeadDim == 448 ? kColumns0 : kHeadDim - kColumns0;
  // Columns of O and V of warpgroup w, and the first of them.
  FFPA_HD static constexpr int columns(int w) { return w == 0 ? kColumns0 : kColumns1; }
  FFPA_HD static constexpr int first_column(int w) { return w == 0 ? 0 : kHeadDim - kColumns1; }
  FFPA_HD static constexpr int first_stored(int w) { return w * kColumns0; }  // by warpgroup w
  FFPA_HD static constexpr int first_row(int) { return 0; }

  static constexpr int kStages = 4;
  static constexpr int kKChunks = kHeadDim / 64;
  // One empty chunk more where that makes passes a multiple of the ring: saves registers at 448.
  static constexpr int kKPass = kKChunks + (kKChunks % kStages == kStages - 1 ? 1 : 0);
  static constexpr int kVChunks = 4;
  static constexpr int kEarlyV = kVChunks / 2;  // V slots handed back half-way through softmax
  static constexpr int kVRows = kBlockN / kVChunks;
  static constexpr int kKBytes = kBlockN * 64 * 2;
  FFPA_HD static constexpr int v_bytes(int w) { return columns(w) * kVRows * 2; }
  static constexpr int kSlotBytes = 16384;
  static_assert(kKBytes <= kSlotBytes && v_bytes(0) <= kSlotBytes);
  static_assert(kHeadDim % 64 == 0 && kColumns0 <= 256,
                "K chunks have 64 columns, and a part of O has 128 registers");

  static constexpr int kThreads = 384;  // two consumer warpgroups, one of producers and scheduler
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 240;
  static_assert(128 * (kProducerRegisters + 2 * kConsumerRegisters) <= 384 * 168,
                "setmaxnreg only moves registers inside what the launch got: 168 per thread");
};

// The smallest instance that holds a head dim; 0: none.
constexpr int forward_head_dim_tile(int64_t head_dim) {
  for (int tile : {320, 384, 448, 512}) {
    if (head_dim <= tile) return tile;
  }
  return 0;
}

}  // namespace ffpa::sm90
