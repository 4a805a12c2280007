// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Shared-memory plan and barrier table of the dq kernels.
#pragma once

#include "plan/visibility.h"
#include "sm90/pipeline/storage.h"

namespace ffpa::sm90 {

// 128 query rows of a head, as all roles read them from shared memory.
struct DqTile {
  int32_t begin, end;                    // key tiles that either block of 64 queries sees,
  int32_t block_begin[2], block_end[2];  // and each of them
  int32_t block;                         // the first of the two, in the sequence
  int32_t rows_q, len_q, len_k;
  int32_t k_x, k_origin;  // ragged coordinates: of the sequence's first key
  int32_t key_tile_row;   // of the sequence in the table of dS tiles
  int32_t ds_tile;        // of the head
  int64_t out_offset;     // elements, of the sequence's first row in dq
};

template <class Config>
struct DqSharedMemory {
  static constexpr uint32_t kDsBytes = 64 * 64 * 2;
  static constexpr uint32_t kSlotBytes = 2 * kDsBytes + Config::kKeyBytes;
  static constexpr uint32_t kRoles = 3;
  static constexpr uint32_t kTile = Config::kStages * kSlotBytes;
  static constexpr uint32_t kBarriers = kTile + sizeof(DqTile);
  static constexpr int kNumBarriers = 2 * Config::kStages;
  static constexpr uint32_t kReport = kBarriers + 8 * kNumBarriers;
  static constexpr uint32_t kRoleTiles = kReport + 8;
  static constexpr uint32_t kBytes = kRoleTiles + 16 * kRoles;
  static_assert(kBytes <= kMaxSharedBytes, "one CTA per SM");
  static_assert(kTile % 8 == 0 && sizeof(DqTile) % 8 == 0);

  FFPA_HD static constexpr Buffer ds(uint32_t s, uint32_t half) {
    return {s * kSlotBytes + half * kDsBytes, kDsBytes};
  }
  FFPA_HD static constexpr Buffer keys(uint32_t s) {
    return {s * kSlotBytes + 2 * kDsBytes, Config::kKeyBytes};
  }
  FFPA_HD static constexpr Barrier slot_ready(uint32_t s) { return {kBarriers + 16 * s}; }
  FFPA_HD static constexpr Barrier slot_free(uint32_t s) { return {kBarriers + 16 * s + 8}; }
  FFPA_HD static constexpr BarrierEntry entry(int i) {
    if (i % 2 == 0) return {slot_ready(i / 2), 1, "slot_ready", -1, i / 2};
    return {slot_free(i / 2), 2, "slot_free", -1, i / 2};  // a thread of each consumer
  }
};

}  // namespace ffpa::sm90
