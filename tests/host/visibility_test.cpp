// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// plan/visibility.h against its definition, pair by pair, for every small problem.
#include "plan/visibility.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ffpa {
namespace {

bool visible(const Visibility& v, int64_t i, int64_t j) {
  const int64_t distance = j - (i + v.len_k - v.len_q);
  return 0 <= i && i < v.len_q && 0 <= j && j < v.len_k && -int64_t{v.left} <= distance &&
         distance <= v.right;
}

std::string text(const Visibility& v) {
  return "len_q " + std::to_string(v.len_q) + " len_k " + std::to_string(v.len_k) + " left " +
         std::to_string(v.left) + " right " + std::to_string(v.right);
}

template <class Check>
void for_each_small_problem(int32_t longest, Check check) {
  for (int32_t nq = 0; nq <= longest; ++nq) {
    for (int32_t nk = 0; nk <= longest; ++nk) {
      for (int32_t left : {0, 1, 2, 5, kUnbounded}) {
        for (int32_t right : {0, 1, 3, kUnbounded}) check(Visibility{nq, nk, left, right});
      }
    }
  }
}

TEST(Visibility, ranges_hold_exactly_the_visible_pairs) {
  for_each_small_problem(12, [](const Visibility& v) {
    for (int32_t i = 0; i < v.len_q; ++i) {
      const Range keys = visible_keys(v, i);
      for (int32_t j = 0; j < v.len_k; ++j) {
        const Range queries = visible_queries(v, j);
        const bool expected = visible(v, i, j);
        ASSERT_EQ(keys.begin <= j && j < keys.end, expected) << text(v) << " " << i << " " << j;
        ASSERT_EQ(queries.begin <= i && i < queries.end, expected)
            << text(v) << " " << i << " " << j;
      }
      ASSERT_TRUE(0 <= keys.begin && keys.begin <= v.len_k && 0 <= keys.end && keys.end <= v.len_k);
    }
  });
}

// `see(row, column)`: the pairs of the tiled dimension (columns) and the rows that visit it.
template <class See>
void check_tiles(const TileRange& tiles, int32_t row_begin, int32_t rows, int32_t row_count,
                 int32_t column_count, int32_t block, See see, const std::string& where) {
  ASSERT_LE(0, tiles.begin) << where;
  ASSERT_LE(tiles.begin, tiles.end) << where;
  ASSERT_LE(tiles.begin, tiles.full_begin) << where;
  ASSERT_LE(tiles.full_begin, tiles.full_end) << where;
  ASSERT_LE(tiles.full_end, tiles.end) << where;
  for (int32_t tile = 0; tile * block < column_count + 2 * block; ++tile) {
    bool any = false, all = (tile + 1) * block <= column_count;
    for (int32_t i = row_begin; i < std::min(row_begin + rows, row_count); ++i) {
      for (int32_t j = tile * block; j < std::min((tile + 1) * block, column_count); ++j) {
        any = any || see(i, j);
        all = all && see(i, j);
      }
    }
    ASSERT_EQ(tiles.begin <= tile && tile < tiles.end, any) << where << " tile " << tile;
    ASSERT_EQ(tiles.full(tile), any && all) << where << " tile " << tile;
  }
}

TEST(Visibility, tiles_are_visited_iff_a_pair_is_visible_and_full_iff_all_are) {
  for_each_small_problem(9, [](const Visibility& v) {
    for (int32_t rows : {1, 2, 4}) {
      for (int32_t block : {1, 2, 3, 4}) {
        const std::string where = text(v) + " rows " + std::to_string(rows) + " block " +
                                  std::to_string(block) + " from ";
        // One group of rows more than there are: grid padding visits nothing.
        for (int32_t begin = 0; begin <= v.len_q + rows; begin += rows) {
          check_tiles(
              key_tiles(v, begin, rows, block), begin, rows, v.len_q, v.len_k, block,
              [&](int32_t i, int32_t j) { return visible(v, i, j); },
              where + std::to_string(begin));
        }
        for (int32_t begin = 0; begin <= v.len_k + rows; begin += rows) {
          check_tiles(
              query_tiles(v, begin, rows, block), begin, rows, v.len_k, v.len_q, block,
              [&](int32_t j, int32_t i) { return visible(v, i, j); },
              where + "key " + std::to_string(begin));
        }
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

// A forward that walks key tiles and a backward that walks query tiles meet the same tile pairs.
TEST(Visibility, both_directions_visit_the_same_tile_pairs) {
  for_each_small_problem(10, [](const Visibility& v) {
    for (int32_t block_q : {1, 3, 4}) {
      for (int32_t block_k : {1, 2, 4}) {
        for (int32_t tq = 0; tq * block_q < v.len_q; ++tq) {
          const TileRange keys = key_tiles(v, tq * block_q, block_q, block_k);
          for (int32_t tk = 0; tk * block_k < v.len_k; ++tk) {
            const TileRange queries = query_tiles(v, tk * block_k, block_k, block_q);
            ASSERT_EQ(keys.begin <= tk && tk < keys.end, queries.begin <= tq && tq < queries.end)
                << text(v) << " tiles " << tq << " " << tk;
          }
        }
      }
    }
  });
}

TEST(Visibility, longest_sequences_stay_inside_int32) {
  for (int32_t nq : {1, kMaxSeqlen}) {
    for (int32_t nk : {1, kMaxSeqlen}) {
      const Visibility full{nq, nk, kUnbounded, kUnbounded}, causal{nq, nk, kUnbounded, 0};
      for (int32_t i : {0, nq - 1}) {
        EXPECT_EQ(visible_keys(full, i).begin, 0);
        EXPECT_EQ(visible_keys(full, i).end, nk);
        EXPECT_EQ(visible_keys(causal, i).size(), std::max<int64_t>(0, int64_t{i} + 1 + nk - nq));
      }
      EXPECT_EQ(key_tiles(full, 0, 128, 64).count(), (int64_t{nk} + 63) / 64);
      EXPECT_EQ(query_tiles(full, 0, 64, 128).count(), (int64_t{nq} + 127) / 128);
      EXPECT_EQ(key_tiles(causal, nq - 1, 128, 64).count(), (int64_t{nk} + 63) / 64);
    }
  }
}

}  // namespace
}  // namespace ffpa
