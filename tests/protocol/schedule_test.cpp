// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// What the Hopper kernels decide before they touch data: the order of work, where sequences lie,
// and the swizzle.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "sm90/schedule/work.h"
#include "sm90/tile/fragment.cuh"
#include "sm90/tile/swizzle.h"

namespace ffpa::sm90 {
namespace {

TEST(Schedule, every_item_once_and_sections_in_order) {
  for (int streams : {1, 3, 8}) {
    for (int group : {1, 3, 8}) {
      for (int section : {1, 2, 8}) {
        for (uint32_t tiles : {1u, 5u}) {
          const WorkOrder o{1, group, streams, std::min(section, streams), int32_t(tiles), false};
          std::set<std::tuple<int, int, int>> seen;
          int last_section = 0, last_rank = 0;
          for (uint32_t i = 0; i < o.items(tiles); ++i) {
            const WorkItem w = work_item(o, tiles, i);
            ASSERT_TRUE(0 <= w.stream && w.stream < streams && 0 <= w.head && w.head < group);
            ASSERT_TRUE(0 <= w.rank && w.rank < int(tiles));
            seen.insert({w.stream, w.rank, w.head});
            const int now = w.stream / o.section_streams;
            ASSERT_GE(now, last_section);
            ASSERT_TRUE(now != last_section || w.rank >= last_rank);
            last_section = now, last_rank = w.rank;
          }
          EXPECT_EQ(seen.size(), o.items(tiles));
        }
      }
    }
  }
}

// Causal, 256 tiles on 132 CTAs: the second tile of each goes backwards; nothing else does.
TEST(Schedule, second_tiles_of_a_section_walk_back) {
  WorkOrder o{1, 1, 2, 1, 256, true};
  for (uint32_t i = 0; i < o.items(256); ++i) {
    EXPECT_EQ(walks_back(o, work_item(o, 256, i).position, 132), i % 256 >= 132) << i;
  }
  o.descending = false;
  EXPECT_FALSE(walks_back(o, 200, 132));
}

TEST(Schedule, no_row_outside_the_tensors_whatever_the_offsets) {
  const std::vector<int32_t> bad = {-5, 40, 10, 200, 7}, used = {1000, -1, 3, 2};
  const Sequences s{bad.data(), bad.data(), used.data(), used.data(), 4, 64, 64};
  for (int b = 0; b <= 4; ++b) {
    const SequenceRows r = s.at(b);
    EXPECT_TRUE(0 <= r.q_begin && 0 <= r.rows_q && r.q_begin + r.rows_q <= 64) << b;
    EXPECT_TRUE(0 <= r.k_begin && 0 <= r.rows_k && r.k_begin + r.rows_k <= 64) << b;
    EXPECT_TRUE(0 <= r.len_q && r.len_q <= r.rows_q && 0 <= r.len_k && r.len_k <= r.rows_k) << b;
  }
}

TEST(Schedule, rows_behind_the_last_offset_are_unused) {
  const std::vector<int32_t> cu = {0, 10, 10, 25};
  const Sequences s{cu.data(), cu.data(), nullptr, nullptr, 3, 64, 30};
  EXPECT_EQ(s.at(1).rows_q, 0);
  EXPECT_EQ(s.at(2).len_k, 15);
  EXPECT_EQ(s.at(3).q_begin, 25);
  EXPECT_EQ(s.at(3).rows_q, 39);
  EXPECT_EQ(s.at(3).len_q, 0);
  EXPECT_GE(max_sequence_tiles(64, 3, 64), 4);
}

// A permutation of 16-byte chunks inside each row; the eight rows of a group put one column into
// different banks.
TEST(Tile, swizzle) {
  std::set<uint32_t> seen;
  for (uint32_t row = 0; row < 16; ++row) {
    for (uint32_t column = 0; column < 64; ++column) {
      const uint32_t at = swizzle128(row, column);
      EXPECT_EQ(at / 128, row);
      EXPECT_EQ(at % 16, column % 8 * 2);
      seen.insert(at);
    }
  }
  EXPECT_EQ(seen.size(), 16u * 64);
  for (uint32_t column = 0; column < 64; column += 8) {
    std::set<uint32_t> banks;
    for (uint32_t row = 0; row < 8; ++row) banks.insert(swizzle128(row, column) % 128);
    EXPECT_EQ(banks.size(), 8u);
  }
}

TEST(Tile, lanes_cover_an_accumulator) {
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (uint32_t t = 0; t < 128; ++t) {
    const Lane lane = Lane::of(t);
    for (uint32_t i = 0; i < 4; ++i) {
      seen.insert({lane.row + 8 * row_of_register(int(i)), lane.column + i % 2});
    }
  }
  EXPECT_EQ(seen.size(), 64u * 8);
}

}  // namespace
}  // namespace ffpa::sm90
