// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Tile sizes and shared memory of the forward kernels for head dims up to 256.
#pragma once

#include "ffpa/tensor.h"
#include "sm90/forward/work_tile.h"
#include "sm90/pipeline/storage.h"

namespace ffpa::sm90 {

// The one truth for shared memory. Ring 0 has K, ring 1 has V; a slot is a whole block.
template <class Config>
struct RowsSharedMemory {
  static constexpr uint32_t kQBytes = Config::kBlockM * Config::kHeadDim * 2;
  static constexpr uint32_t kTileSlots = 2;
  static constexpr uint32_t kRoles = 5;

  static constexpr uint32_t kRing = kQBytes;
  static constexpr uint32_t kVRing = kRing + Config::kStages * Config::kKBytes;
  static constexpr uint32_t kTile = kVRing + Config::kStages * Config::kVBytes;
  static constexpr uint32_t kBarriers = kTile + kTileSlots * sizeof(WorkTile);
  static constexpr int kRingBarriers = 4 * Config::kStages;
  static constexpr int kNumBarriers = kRingBarriers + 8;
  static constexpr uint32_t kTail = kBarriers + 8 * kRingBarriers;
  // For a wait report: where it goes, and {n, sequence, head, q_row} of each role's tile.
  static constexpr uint32_t kReport = kBarriers + 8 * kNumBarriers;
  static constexpr uint32_t kRoleTiles = kReport + 8;
  static constexpr uint32_t kBytes = kRoleTiles + 16 * kRoles;
  static_assert(kBytes <= kMaxSharedBytes, "one CTA per SM");
  static_assert(kTile % 8 == 0 && sizeof(WorkTile) % 8 == 0);

  // Buffers.
  FFPA_HD static constexpr Buffer q() { return {0, kQBytes}; }
  FFPA_HD static constexpr Buffer slot(uint32_t ring, uint32_t s) {
    return ring == 0 ? Buffer{kRing + s * Config::kKBytes, Config::kKBytes}
                     : Buffer{kVRing + s * Config::kVBytes, Config::kVBytes};
  }
  FFPA_HD static constexpr Buffer tile(uint32_t s) {
    return {kTile + s * uint32_t(sizeof(WorkTile)), sizeof(WorkTile)};
  }

  // Barriers, named by the event they announce.
  FFPA_HD static constexpr Barrier slot_ready(uint32_t ring, uint32_t s) {
    return {kBarriers + 16 * (ring * Config::kStages + s)};
  }
  FFPA_HD static constexpr Barrier slot_free(uint32_t ring, uint32_t s) {
    return {slot_ready(ring, s).offset + 8};
  }
  FFPA_HD static constexpr Barrier q_ready() { return {kTail}; }
  FFPA_HD static constexpr Barrier q_free() { return {kTail + 8}; }
  FFPA_HD static constexpr Barrier turn(uint32_t w) { return {kTail + 16 + 8 * w}; }
  FFPA_HD static constexpr Barrier tile_ready(uint32_t s) { return {kTail + 32 + 16 * s}; }
  FFPA_HD static constexpr Barrier tile_free(uint32_t s) { return {kTail + 40 + 16 * s}; }

  FFPA_HD static constexpr BarrierEntry entry(int i) {
    if (i < kRingBarriers) {
      const int ring = i / 2 / Config::kStages, s = i / 2 % Config::kStages;
      if (i % 2 == 0)
        return {slot_ready(ring, s), 1, "slot_ready", ring, s};  // the producer, and the bytes
      return {slot_free(ring, s), 2, "slot_free", ring, s};      // a thread of each consumer
    }
    const int j = i - kRingBarriers;
    switch (j) {
      case 0:
        return {q_ready(), 1, "q_ready", -1, -1};  // producer 0, and the bytes of Q
      case 1:
        return {q_free(), 2, "q_free", -1, -1};  // a thread of each consumer
      case 2:
      case 3:
        return {turn(j - 2), 1, "turn", j - 2, -1};  // a thread of the other consumer
      case 4:
      case 6:
        return {tile_ready((j - 4) / 2), 1, "tile_ready", -1, (j - 4) / 2};  // the scheduler
      default:  // every warp of consumers and producers
        return {tile_free((j - 4) / 2), 10, "tile_free", -1, (j - 4) / 2};
    }
  }
};

// Head dims up to 256: a CTA has 128 query rows, 64 for each consumer warpgroup, which holds all
// columns of O for them. Both use the same blocks of K and V. The block is as long as two slots of
// each and Q leave room for, and as S, P and O leave registers for.
template <int kHeadDim_, int kHeadDimV_, DType kDType_>
struct RowsConfig {
  using SharedMemory = RowsSharedMemory<RowsConfig>;
  static constexpr bool kSplitRows = true;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kHeadDimV = kHeadDimV_;
  static constexpr DType kDType = kDType_;
  static constexpr int kBlockM = 128;
  static constexpr int kBlockN = kHeadDim == 256    ? 80
                                 : kHeadDimV == 192 ? 112
                                 : kHeadDim == 128  ? 176
                                                    : 128;
  // The products of one warpgroup run while the other is at its softmax. Where they take far longer
  // than softmax there is nothing to gain.
  static constexpr bool kTakeTurns = kHeadDim <= 128;

  static constexpr int kStages = 2;
  static constexpr int kKPass = 1, kVChunks = 1;  // a block is one chunk
  static constexpr int kKChunks = kHeadDim / 64;  // copies and groups of columns inside it
  static constexpr int kVRows = kBlockN;
  static constexpr int kKBytes = kBlockN * kHeadDim * 2;
  static constexpr int kVBytes = kBlockN * kHeadDimV * 2;
  static_assert(kBlockN % 16 == 0 && kKBytes % 1024 == 0 && kVBytes % 1024 == 0);

  // Rows and columns of warpgroup w.
  static constexpr int kColumns0 = kHeadDimV, kColumns1 = kHeadDimV;
  FFPA_HD static constexpr int columns(int) { return kHeadDimV; }
  FFPA_HD static constexpr int first_column(int) { return 0; }
  FFPA_HD static constexpr int first_stored(int) { return 0; }
  FFPA_HD static constexpr int first_row(int w) { return 64 * w; }

  static constexpr int kThreads = 384;  // two consumer warpgroups, one of producers and scheduler
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 240;
};

}  // namespace ffpa::sm90
