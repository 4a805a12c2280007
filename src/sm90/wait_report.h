// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cstdint>

namespace ffpa::sm90 {

// What a wait that gave up tells the host. Written by report_expired_wait (ptx/wait.cuh), which
// knows the offsets.
struct WaitReport {
  uint32_t taken;    // by the first wait to expire; others stay silent
  uint32_t expired;  // 1 once the fields below are valid
  uint32_t kernel;   // an id that the launcher gave
  uint32_t cta, thread;
  uint32_t barrier;                   // offset in shared memory
  uint32_t parity;                    // of the phase
  uint32_t n, sequence, head, q_row;  // the role's work tile, the n-th of its CTA
};
static_assert(sizeof(WaitReport) == 44);

}  // namespace ffpa::sm90
