// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Which dS tiles exist, and where: both kernels and the prepare kernel ask here.
#pragma once

#include "sm90/backward/params.h"

namespace ffpa::sm90 {

// Query blocks of 64 rows that see the 64 keys from `key_row` on, those of the chunk.
FFPA_HD constexpr TileRange chunk_blocks(const Visibility& v, int32_t key_row, const Chunk& chunk) {
  TileRange t{0, 0, 0, 0};
  if (key_row < v.len_k) t = query_tiles(v, key_row, 64, 64);
  t.begin = clamp(t.begin, chunk.block_begin, chunk.block_end);
  t.end = clamp(t.end, t.begin, chunk.block_end);
  return t;
}

// Key tiles that see the 64 queries of `block`; none where the block is not the chunk's.
FFPA_HD constexpr TileRange chunk_key_tiles(const Visibility& v, int32_t block,
                                            const Chunk& chunk) {
  if (block < chunk.block_begin || block >= chunk.block_end || block * 64 >= v.len_q) {
    return {0, 0, 0, 0};
  }
  return key_tiles(v, block * 64, 64, 64);
}

FFPA_HD constexpr int32_t first_query_row(const Sequences& s, int32_t b, const SequenceRows& rows) {
  return s.cu_q ? rows.q_begin : b * s.rows_q;
}
FFPA_HD constexpr int32_t first_key_row(const Sequences& s, int32_t b, const SequenceRows& rows) {
  return s.cu_k ? rows.k_begin : b * s.rows_k;
}

}  // namespace ffpa::sm90
