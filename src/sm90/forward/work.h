// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// What every role must agree on: the work tiles, which key blocks a tile visits, in what order.
#pragma once

#include <type_traits>

#include "plan/visibility.h"
#include "sm90/pipeline/barrier.h"

namespace ffpa::sm90 {

// kBlockM query rows of one head of one sequence. Lengths are those in use.
struct WorkTile {
  int32_t batch;               // sequence
  int32_t q_begin, k_begin;    // packed: its first rows in q and k; dense: 0
  int32_t len_q, len_k;
  int32_t q_row;               // first row of the tile inside the sequence
  int32_t head, kv_head;       // query head, and the K and V head that its group shares
};

// Key blocks [begin, end); those in [full_begin, full_end) are visible to every row.
using KeyBlocks = TileRange;

template <class Config>
FFPA_HD constexpr KeyBlocks visible_key_blocks(const WorkTile& t, int32_t left, int32_t right) {
  return key_tiles({t.len_q, t.len_k, left, right}, t.q_row, Config::kBlockM, Config::kBlockN);
}

// THE order. Warpgroup w owns the blocks begin + w, begin + w + 2, ...; both warpgroups use every V
// block. A step covers an own block and the other warpgroup's block before it; `absorb` takes the
// other's last block when no own block follows. A warpgroup's producer and consumer both walk with
// this.
template <class Step, class Absorb>
FFPA_ROLE void walk(KeyBlocks blocks, int w, Step step, Absorb absorb) {
  const int begin = blocks.begin, end = blocks.end;
  if (begin == end) return;  // return, not a condition on what follows: ptxas spills
  // Nothing of the other warpgroup comes before the first block.
  if (w == 0) step(begin, std::false_type{});
  for (int block = begin + 2 - w; block < end; block += 2) step(block, std::true_type{});
  if ((end - begin) % 2 == w) absorb(end - 1);
}

}  // namespace ffpa::sm90
