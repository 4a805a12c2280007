// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// One query tile of one head, as the scheduler hands it to the other roles in shared memory.
#pragma once

#include <cstdint>

#include "plan/visibility.h"

namespace ffpa::sm90 {

// Key blocks that a tile visits, counted in the order of the walk. Those in [full_begin, full_end)
// are whole and visible to every row. count < 0: there is no tile, the work is done.
struct KeyBlocks {
  int32_t count, full_begin, full_end;

  FFPA_HD constexpr bool done() const { return count < 0; }
  FFPA_HD constexpr bool full(int32_t block) const {
    return full_begin <= block && block < full_end;
  }
};

struct WorkTile {
  KeyBlocks blocks;
  int32_t first_key;             // of the walk's block 0
  int32_t key_step;              // from block to block: the walk may go backwards
  int32_t q_row;                 // first row of the tile inside the sequence
  int32_t rows_q, len_q, len_k;  // rows of the sequence; those in use
  int32_t sequence, head;
  // Coordinates in the ragged tensor maps (tensor_map.h): of the tile's first query row, of the
  // first key of block 0, and of the sequence in Q, K and V.
  int32_t q_x, k_x, q_origin, k_origin, v_origin;
  int32_t last_x;                  // of the last key of the sequence
  int64_t out_offset, lse_offset;  // elements, of the sequence's first row
};

}  // namespace ffpa::sm90
