// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Which keys a query sees, and which tiles a kernel visits: THE trip count. Producers, consumers,
// the CPU backend, the launchers and the tests all call these functions; a second formula is a
// defect.
#pragma once

#include <cstdint>

#include "plan/host_device.h"

namespace ffpa {

// Longest sequence. Sums of two lengths and a window then stay inside int32.
inline constexpr int32_t kMaxSeqlen = 1 << 29;
// A window side that hides nothing.
inline constexpr int32_t kUnbounded = kMaxSeqlen;

FFPA_HD constexpr int32_t min_of(int32_t a, int32_t b) { return a < b ? a : b; }
FFPA_HD constexpr int32_t max_of(int32_t a, int32_t b) { return a > b ? a : b; }
FFPA_HD constexpr int32_t clamp(int32_t x, int32_t lo, int32_t hi) {
  return min_of(max_of(x, lo), hi);
}
FFPA_HD constexpr int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

// One sequence under a window (causal: right = 0). Key j is visible to query i iff
// -left <= j - (i + len_k - len_q) <= right; the lengths are those in use (seqused).
struct Visibility {
  int32_t len_q, len_k;
  int32_t left, right;  // in [0, kUnbounded]

  FFPA_HD constexpr int32_t diagonal() const { return len_k - len_q; }
};

struct Range {
  int32_t begin, end;  // empty where end <= begin

  FFPA_HD constexpr bool empty() const { return end <= begin; }
  FFPA_HD constexpr int32_t size() const { return empty() ? 0 : end - begin; }
};

// Keys that query i sees.
FFPA_HD constexpr Range visible_keys(const Visibility& v, int32_t i) {
  const int32_t self = i + v.diagonal();
  return {clamp(self - v.left, 0, v.len_k), clamp(self + v.right + 1, 0, v.len_k)};
}

// Queries that see key j.
FFPA_HD constexpr Range visible_queries(const Visibility& v, int32_t j) {
  const int32_t self = j - v.diagonal();
  return {clamp(self - v.right, 0, v.len_q), clamp(self + v.left + 1, 0, v.len_q)};
}

// Tiles of one dimension that a tile of the other one visits: [begin, end), in tiles. Those in
// [full_begin, full_end) are whole and visible to every row: they need no mask.
struct TileRange {
  int32_t begin, end;
  int32_t full_begin, full_end;

  FFPA_HD constexpr int32_t count() const { return end - begin; }
  FFPA_HD constexpr bool full(int32_t tile) const { return full_begin <= tile && tile < full_end; }
};

// `any`: the union of what the rows see, `all`: what every row sees.
FFPA_HD constexpr TileRange to_tiles(Range any, Range all, int32_t block) {
  TileRange t{0, 0, 0, 0};
  if (any.empty()) return t;
  t.begin = any.begin / block;
  t.end = ceil_div(any.end, block);
  t.full_begin = clamp(ceil_div(all.begin, block), t.begin, t.end);
  t.full_end = clamp(all.end / block, t.full_begin, t.end);
  return t;
}

// Key tiles of `block` keys that the queries [q_begin, q_begin + rows) visit.
FFPA_HD constexpr TileRange key_tiles(const Visibility& v, int32_t q_begin, int32_t rows,
                                      int32_t block) {
  const int32_t q_end = min_of(q_begin + rows, v.len_q);
  if (q_begin >= q_end) return {0, 0, 0, 0};
  const Range first = visible_keys(v, q_begin), last = visible_keys(v, q_end - 1);
  return to_tiles({first.begin, last.end}, {last.begin, first.end}, block);
}

// Query tiles of `block` queries that the keys [k_begin, k_begin + rows) visit.
FFPA_HD constexpr TileRange query_tiles(const Visibility& v, int32_t k_begin, int32_t rows,
                                        int32_t block) {
  const int32_t k_end = min_of(k_begin + rows, v.len_k);
  if (k_begin >= k_end) return {0, 0, 0, 0};
  const Range first = visible_queries(v, k_begin), last = visible_queries(v, k_end - 1);
  return to_tiles({first.begin, last.end}, {last.begin, first.end}, block);
}

}  // namespace ffpa
