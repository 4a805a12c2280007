// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Shared-memory plan and barrier table of the dkdv kernels; both CTAs of a pair have the same.
#pragma once

#include "plan/visibility.h"
#include "sm90/pipeline/storage.h"

namespace ffpa::sm90 {

// The key tile of a pair, as all roles read it from shared memory.
struct DkdvTile {
  int32_t blocks;                           // query blocks that see it, of each head
  int32_t first_block;                      // in the sequence
  int32_t full_begin, full_end;             // those that need no mask, counted from the first one
  int32_t key_row, rows_k, len_q, len_k;    // key_row: its first key in the sequence
  int32_t x_x, x_origin;                    // ragged coordinates: of its rows of K or V,
  int32_t q_x, score_origin, value_origin;  // of the sequence's rows of Q and dO, first head
  int32_t statistics_row;                   // of the sequence
  int32_t first_head;                       // of the group
  int32_t ds_tile;                          // of the first head and block
  int64_t out_offset;                       // elements, of the sequence's first row in dV or dK
  int64_t partial_offset;                   // elements
};

template <class Config>
struct DkdvSharedMemory {
  static constexpr uint32_t kXBytes = Config::kKPass * Config::kSlotBytes;
  static constexpr uint32_t kPBytes = 64 * 64 * 2;
  static constexpr uint32_t kRoles = 4;

  static constexpr uint32_t kRing = kXBytes;
  static constexpr uint32_t kP = kRing + 2 * Config::kStages * Config::kSlotBytes;
  static constexpr uint32_t kReceived = kP + 2 * kPBytes;
  static constexpr uint32_t kTile = kReceived + 2 * kPBytes;
  static constexpr uint32_t kBarriers = kTile + sizeof(DkdvTile);
  static constexpr int kRingBarriers = 4 * Config::kStages;
  static constexpr int kNumBarriers = kRingBarriers + 9;
  static constexpr uint32_t kTail = kBarriers + 8 * kRingBarriers;
  static constexpr uint32_t kReport = kBarriers + 8 * kNumBarriers;
  static constexpr uint32_t kRoleTiles = kReport + 8;
  static constexpr uint32_t kBytes = kRoleTiles + 16 * kRoles;
  static_assert(kBytes <= kMaxSharedBytes, "one CTA per SM");
  static_assert(kTile % 8 == 0 && sizeof(DkdvTile) % 8 == 0);

  FFPA_HD static constexpr Buffer x() { return {0, kXBytes}; }
  FFPA_HD static constexpr Buffer slot(uint32_t w, uint32_t s) {
    return {kRing + (w * Config::kStages + s) * Config::kSlotBytes, Config::kSlotBytes};
  }
  FFPA_HD static constexpr Buffer p(uint32_t w) { return {kP + w * kPBytes, kPBytes}; }
  FFPA_HD static constexpr Buffer received(uint32_t w) {
    return {kReceived + w * kPBytes, kPBytes};
  }

  FFPA_HD static constexpr Barrier slot_ready(uint32_t w, uint32_t s) {
    return {kBarriers + 16 * (w * Config::kStages + s)};
  }
  FFPA_HD static constexpr Barrier slot_free(uint32_t w, uint32_t s) {
    return {slot_ready(w, s).offset + 8};
  }
  FFPA_HD static constexpr Barrier p_ready(uint32_t w) { return {kTail + 16 * w}; }
  FFPA_HD static constexpr Barrier p_free(uint32_t w) { return {kTail + 16 * w + 8}; }
  // Of CTA 1: the peer's P has come. Of CTA 0: the peer has read it.
  FFPA_HD static constexpr Barrier message_ready(uint32_t w) { return {kTail + 32 + 16 * w}; }
  FFPA_HD static constexpr Barrier message_free(uint32_t w) { return {kTail + 40 + 16 * w}; }
  FFPA_HD static constexpr Barrier x_ready() { return {kTail + 64}; }

  FFPA_HD static constexpr BarrierEntry entry(int i) {
    if (i < kRingBarriers) {
      const int w = i / 2 / Config::kStages, s = i / 2 % Config::kStages;
      if (i % 2 == 0) return {slot_ready(w, s), 1, "slot_ready", w, s};
      return {slot_free(w, s), 1, "slot_free", w, s};
    }
    const int j = i - kRingBarriers, w = j / 2 % 2;
    if (j == 8) return {x_ready(), 1, "x_ready", -1, -1};
    if (j < 4) {
      if (j % 2 == 0) return {p_ready(w), 128, "p_ready", w, -1};
      // Every warp of the other consumer, and a thread of its own: the tile is stored.
      return {p_free(w), 5, "p_free", w, -1};
    }
    if (j % 2 == 0) return {message_ready(w), 1, "message_ready", w, -1};
    return {message_free(w), 4, "message_free", w, -1};  // every warp of the peer's consumer w
  }
};

}  // namespace ffpa::sm90
