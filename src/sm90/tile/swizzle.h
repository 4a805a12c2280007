// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Tiles in shared memory under the 128-byte swizzle, and the descriptors that wgmma reads them by.
#pragma once

#include <cstdint>

#include "plan/host_device.h"

namespace ffpa::sm90 {

// Byte of element (row, column) of a tile of 64 halves a row: the 16-byte chunks of each 128-byte
// row change places by row % 8. What TMA writes and wgmma reads.
FFPA_HD constexpr uint32_t swizzle128(uint32_t row, uint32_t column) {
  return row * 128 + ((column / 8) ^ (row % 8)) * 16 + column % 8 * 2;
}

// Matrix descriptor, 128-byte swizzle; 8-row groups 1024 bytes apart. `leading`: bytes between
// groups of 64 elements of the contiguous dimension (MN-major operands wider than 64).
FFPA_HD constexpr uint64_t wgmma_descriptor(uint32_t address, uint32_t leading) {
  return (address >> 4) | uint64_t(leading >> 4) << 16 | uint64_t(1024 >> 4) << 32 |
         uint64_t(1) << 62;
}
// What one k-step of 16 adds to a descriptor: 16 columns of K-major rows, 16 rows of MN-major ones.
inline constexpr uint64_t kStepKMajor = (16 * 2) >> 4;
inline constexpr uint64_t kStepMnMajor = (16 * 128) >> 4;

}  // namespace ffpa::sm90
