// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Shared-memory plan and barrier table of the forward kernels.
#pragma once

#include "sm90/forward/work_tile.h"
#include "sm90/pipeline/storage.h"

namespace ffpa::sm90 {

// The one truth for shared memory. w = warpgroup 0 or 1, s = slot.
template <class Config>
struct ForwardSharedMemory {
  static constexpr uint32_t kQBytes = Config::kBlockM * Config::kHeadDim * 2;
  static constexpr uint32_t kPBytes = Config::kBlockM * Config::kBlockN * 2;
  static constexpr uint32_t kRowBytes = Config::kBlockM * sizeof(float);
  static constexpr uint32_t kTileSlots = 2;
  static constexpr uint32_t kRoles = 5;

  static constexpr uint32_t kRing = kQBytes;
  static constexpr uint32_t kP = kRing + 2 * Config::kStages * Config::kSlotBytes;
  static constexpr uint32_t kRowMax = kP + 2 * kPBytes;
  static constexpr uint32_t kRowSum = kRowMax + 2 * kRowBytes;
  static constexpr uint32_t kTile = kRowSum + 4 * kRowBytes;
  static constexpr uint32_t kBarriers = kTile + kTileSlots * sizeof(WorkTile);
  static constexpr int kRingBarriers = 4 * Config::kStages;
  static constexpr int kNumBarriers = kRingBarriers + 11;
  static constexpr uint32_t kTail = kBarriers + 8 * kRingBarriers;
  // For a wait report: where it goes, and {n, sequence, head, q_row} of each role's tile.
  static constexpr uint32_t kReport = kBarriers + 8 * kNumBarriers;
  static constexpr uint32_t kRoleTiles = kReport + 8;
  static constexpr uint32_t kBytes = kRoleTiles + 16 * kRoles;
  static_assert(kBytes <= kMaxSharedBytes, "one CTA per SM");
  static_assert(kTile % 8 == 0 && sizeof(WorkTile) % 8 == 0);

  // Buffers.
  FFPA_HD static constexpr Buffer q() { return {0, kQBytes}; }
  FFPA_HD static constexpr Buffer slot(uint32_t w, uint32_t s) {
    return {kRing + (w * Config::kStages + s) * Config::kSlotBytes, Config::kSlotBytes};
  }
  FFPA_HD static constexpr Buffer p(uint32_t w) { return {kP + w * kPBytes, kPBytes}; }
  FFPA_HD static constexpr Buffer row_max(uint32_t w) {
    return {kRowMax + w * kRowBytes, kRowBytes};
  }
  FFPA_HD static constexpr Buffer row_sum(uint32_t w, uint32_t parity) {
    return {kRowSum + (2 * parity + w) * kRowBytes, kRowBytes};
  }
  FFPA_HD static constexpr Buffer tile(uint32_t s) {
    return {kTile + s * uint32_t(sizeof(WorkTile)), sizeof(WorkTile)};
  }

  // Barriers, named by the event they announce.
  FFPA_HD static constexpr Barrier slot_ready(uint32_t w, uint32_t s) {
    return {kBarriers + 16 * (w * Config::kStages + s)};
  }
  FFPA_HD static constexpr Barrier slot_free(uint32_t w, uint32_t s) {
    return {slot_ready(w, s).offset + 8};
  }
  FFPA_HD static constexpr Barrier p_ready(uint32_t w) { return {kTail + 16 * w}; }
  FFPA_HD static constexpr Barrier p_free(uint32_t w) { return {kTail + 16 * w + 8}; }
  FFPA_HD static constexpr Barrier q_ready() { return {kTail + 32}; }
  FFPA_HD static constexpr Barrier q_free() { return {kTail + 40}; }
  FFPA_HD static constexpr Barrier sums_ready() { return {kTail + 48}; }
  FFPA_HD static constexpr Barrier tile_ready(uint32_t s) { return {kTail + 56 + 16 * s}; }
  FFPA_HD static constexpr Barrier tile_free(uint32_t s) { return {kTail + 64 + 16 * s}; }

  FFPA_HD static constexpr BarrierEntry entry(int i) {
    if (i < kRingBarriers) {
      const int w = i / 2 / Config::kStages, s = i / 2 % Config::kStages;
      if (i % 2 == 0)
        return {slot_ready(w, s), 1, "slot_ready", w, s};  // producer w, and the bytes
      return {slot_free(w, s), 1, "slot_free", w, s};      // a thread of consumer w
    }
    const int j = i - kRingBarriers;
    const int k = j < 4 ? j / 2 : (j - 7) / 2;
    switch (j) {
      case 0:
      case 2:
        return {p_ready(k), 128, "p_ready", k, -1};  // every thread of consumer k
      case 1:
      case 3:
        return {p_free(k), 4, "p_free", k, -1};  // every warp of the other consumer
      case 4:
        return {q_ready(), 1, "q_ready", -1, -1};  // producer 0, and the bytes of Q
      case 5:
        return {q_free(), 2, "q_free", -1, -1};  // a thread of each consumer
      case 6:
        return {sums_ready(), 256, "sums_ready", -1, -1};  // every thread of both consumers
      case 7:
      case 9:
        return {tile_ready(k), 1, "tile_ready", -1, k};  // the scheduler
      default:
        return {tile_free(k), 10, "tile_free", -1, k};  // every warp of consumers and producers
    }
  }
};

}  // namespace ffpa::sm90
