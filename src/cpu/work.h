// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The list of tiles of a call, longest first.
#pragma once

#include "core/problem.h"

namespace ffpa::cpu {

struct WorkTile {
  int32_t batch, first;  // sequence, first row
  int64_t cost;          // visible tiles of the other side
};

enum class TileOf : uint8_t { kQueries, kKeys };

// Upper bound of the list's length, from numbers that need no data.
int64_t max_work_tiles(const Problem& p, TileOf side, int block);
// Writes the list, every row of every sequence in exactly one tile; returns its length.
int64_t list_work_tiles(const Problem& p, TileOf side, int block, int other_block, WorkTile* tiles);

}  // namespace ffpa::cpu
