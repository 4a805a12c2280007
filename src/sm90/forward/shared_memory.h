// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include "plan/host_device.h"
#include "sm90/forward/config.h"
#include "sm90/pipeline/barrier.h"

namespace ffpa::sm90 {

// The one truth for shared memory. w = warpgroup 0 or 1.
template <class Config>
struct SharedMemory {
  static constexpr uint32_t kQBytes = Config::kBlockM * Config::kHeadDim * 2;
  static constexpr uint32_t kPBytes = Config::kBlockM * Config::kBlockN * 2;
  static constexpr uint32_t kRowBytes = Config::kBlockM * sizeof(float);

  static constexpr uint32_t kRing = kQBytes;
  static constexpr uint32_t kP = kRing + 2 * Config::kStages * Config::kSlotBytes;
  static constexpr uint32_t kRowMax = kP + 2 * kPBytes;
  static constexpr uint32_t kRowSum = kRowMax + 2 * kRowBytes;
  static constexpr uint32_t kBarriers = kRowSum + 4 * kRowBytes;
  static constexpr int kNumBarriers = 4 * Config::kStages + 7;
  static constexpr uint32_t kTiles = kBarriers + 8 * kNumBarriers;  // each role's tile and head
  static constexpr uint32_t kReport = kTiles + 4 * 8;               // pointer to the WaitReport
  static constexpr uint32_t kBytes = kReport + 8;
  static_assert(kBytes <= 232448, "one CTA per SM has 227 KB");

  // Buffers.
  FFPA_HD static constexpr Buffer q() { return {0, kQBytes}; }
  FFPA_HD static constexpr Buffer slot(int w, int s) {
    return {uint32_t(kRing + (w * Config::kStages + s) * Config::kSlotBytes), Config::kSlotBytes};
  }
  FFPA_HD static constexpr Buffer p(int w) { return {kP + w * kPBytes, kPBytes}; }
  FFPA_HD static constexpr Buffer row_max(int w) { return {kRowMax + w * kRowBytes, kRowBytes}; }
  FFPA_HD static constexpr Buffer row_sum(int w, uint32_t parity) {
    return {kRowSum + (2 * parity + w) * kRowBytes, kRowBytes};
  }

  // Barriers, named by the event they announce.
  FFPA_HD static constexpr Barrier slot_ready(int w, int s) {
    return {uint32_t(kBarriers + 16 * (w * Config::kStages + s))};
  }
  FFPA_HD static constexpr Barrier slot_free(int w, int s) { return {slot_ready(w, s).offset + 8}; }
  static constexpr uint32_t kTail = kBarriers + 32 * Config::kStages;
  FFPA_HD static constexpr Barrier p_ready(int w) { return {kTail + 16 * w}; }
  FFPA_HD static constexpr Barrier p_free(int w) { return {kTail + 16 * w + 8}; }
  FFPA_HD static constexpr Barrier q_ready() { return {kTail + 32}; }
  FFPA_HD static constexpr Barrier q_free() { return {kTail + 40}; }
  FFPA_HD static constexpr Barrier sums_ready() { return {kTail + 48}; }

  // The barrier table: what completes one phase. Read by the kernel, the checker and reports.
  struct Entry {
    Barrier barrier;
    int arrivals;
    const char* event;
    int w, s;  // -1: there is one only
  };
  FFPA_HD static constexpr Entry entry(int i) {
    if (i < 4 * Config::kStages) {
      const int w = i / 2 / Config::kStages, s = i / 2 % Config::kStages;
      if (i % 2 == 0)
        return {slot_ready(w, s), 1, "slot_ready", w, s};  // producer w, and the bytes
      return {slot_free(w, s), 1, "slot_free", w, s};      // a thread of consumer w
    }
    switch (i - 4 * Config::kStages) {
      case 0:
        return {p_ready(0), 128, "p_ready", 0, -1};  // every thread of consumer 0
      case 1:
        return {p_free(0), 4, "p_free", 0, -1};  // every warp of consumer 1
      case 2:
        return {p_ready(1), 128, "p_ready", 1, -1};
      case 3:
        return {p_free(1), 4, "p_free", 1, -1};
      case 4:
        return {q_ready(), 1, "q_ready", -1, -1};  // producer 0, and the bytes of Q
      case 5:
        return {q_free(), 2, "q_free", -1, -1};  // a thread of each consumer
      default:
        return {sums_ready(), 256, "sums_ready", -1, -1};  // every thread of both consumers
    }
  }
};

}  // namespace ffpa::sm90
