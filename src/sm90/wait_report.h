// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cstdint>

namespace ffpa::sm90 {

// What a wait that gave up tells the host. Lies in host-mapped memory: it outlives the trap.
struct WaitReport {
  uint32_t expired;  // 1 once the fields below are valid
  uint32_t cta;
  uint32_t role;     // consumer 0, 1, producer 0, 1
  uint32_t barrier;  // offset in shared memory, see SharedMemory
  uint32_t parity;
  uint32_t tile;     // index in the work list
  uint32_t head;     // query head
  uint32_t taken;    // 1 once a wait has begun to report
};

}  // namespace ffpa::sm90
