// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// What every kernel does before its roles start.
#pragma once

#include "sm90/pipeline/storage.h"
#include "sm90/ptx/barrier.cuh"
#include "sm90/ptx/memory.cuh"

namespace ffpa::sm90 {

// By all threads; a barrier of the CTA (or the cluster) must follow.
template <class S>
FFPA_ROLE void init_barriers(uint32_t smem) {
  if (threadIdx.x < S::kNumBarriers) {
    const BarrierEntry entry = S::entry(threadIdx.x);
    ptx::mbarrier_init(smem + entry.barrier.offset, entry.arrivals);
    ptx::fence_mbarrier_init();
  }
}

// By one thread, where a CTA has one tile: what a wait report of any of its roles tells of it.
template <class S>
FFPA_ROLE void write_role_tiles(uint32_t smem, int n, int sequence, int head, int row) {
  for (int role = 0; role < int(S::kRoles); ++role) {
    const uint32_t to = smem + S::kRoleTiles + 16 * role;
    ptx::store_shared(to, n);
    ptx::store_shared(to + 4, sequence);
    ptx::store_shared(to + 8, head);
    ptx::store_shared(to + 12, row);
  }
}

}  // namespace ffpa::sm90
