// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Philox4x32-10: Salmon, Moraes, Dror, Shaw, Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace ffpa::reference {

std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Does dropout with probability p keep element `element`? See AttentionOptions::dropout_p.
bool dropout_keeps(uint64_t seed, uint64_t offset, uint64_t element, double p);

}  // namespace ffpa::reference
