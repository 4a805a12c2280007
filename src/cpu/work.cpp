// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/work.h"

#include <algorithm>
#include <tuple>

namespace ffpa::cpu {

int64_t max_work_tiles(const Problem& p, TileOf side, int block) {
  const int64_t total = side == TileOf::kQueries ? p.total_q : p.total_k;
  return total / block + p.batch;
}

int64_t list_work_tiles(const Problem& p, TileOf side, int block, int other_block,
                        WorkTile* tiles) {
  int64_t count = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence s = p.sequence(b);
    const Visibility v = p.visibility(s);
    const bool queries = side == TileOf::kQueries;
    const int32_t rows = queries ? s.rows_q : s.rows_k;
    for (int32_t first = 0; first < rows; first += block) {
      const TileRange range = queries ? key_tiles(v, first, block, other_block)
                                      : query_tiles(v, first, block, other_block);
      tiles[count++] = {static_cast<int32_t>(b), first, range.count()};
    }
  }
  std::sort(tiles, tiles + count, [](const WorkTile& a, const WorkTile& b) {
    return std::tuple(-a.cost, a.batch, a.first) < std::tuple(-b.cost, b.batch, b.first);
  });
  return count;
}

}  // namespace ffpa::cpu
