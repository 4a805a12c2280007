// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// philox4x32-10. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
#pragma once

#include <cstdint>

#include "plan/host_device.h"

namespace ffpa {

struct PhiloxBlock {
  uint32_t lane[4];
};

FFPA_HD constexpr PhiloxBlock philox4x32_10(uint64_t counter, uint64_t key) {
  uint32_t c[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
        static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    for (int i = 0; i < 4; ++i) c[i] = next[i];
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

// Is an element with dropout probability p kept? (u + 1) / 2^32 > p, exactly.
FFPA_HD constexpr bool keeps(uint32_t u, double p) {
  return static_cast<double>(u) + 1.0 > p * 4294967296.0;
}

}  // namespace ffpa
