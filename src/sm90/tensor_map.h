// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Tensor maps that end with a sequence.
#pragma once

#include <cuda.h>

#include "core/problem.h"
#include "sm90/forward/params.h"

namespace ffpa::sm90 {

// A tensor, and the box of [rows, columns] that one copy moves. Boxes have 64 columns, 128-byte
// swizzle; with `groups` that many of 64 columns, one behind the other.
struct RaggedTensor {
  const char* name;  // for errors
  Rows rows;
  DType dtype;
  int64_t batch, heads, length, head_dim;  // packed: batch 1, length of the pack
  uint32_t box_rows, groups;
};

// Coordinates: column, row, origin; with groups: 0, row, first group, origin. See RaggedUnits.
Status make_ragged_map(const RaggedTensor& t, CUtensorMap* map, RaggedUnits* units);

}  // namespace ffpa::sm90
