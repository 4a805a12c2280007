// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/tile.h"

#include <algorithm>

namespace ffpa::cpu {

std::string describe(const Problem& p, int workers, const std::string& tiles) {
  return std::string(isa_name(isa())) + ", " + matmul_kernels(p.dtype).name + " products, " +
         std::to_string(workers) + (workers == 1 ? " thread, " : " threads, ") + tiles;
}

TileRows TileRows::take(Arena& arena, int max_rows) {
  TileRows rows;
  rows.all_ = arena.take<const void*>(max_rows);
  rows.terms_ = arena.take<const void*>(max_rows);
  rows.loose_ = arena.take<int32_t>(max_rows);
  return rows;
}

void TileRows::begin(DType dtype, int columns) {
  dtype_ = dtype;
  columns_ = columns;
  count_ = loose_count_ = 0;
}

void TileRows::append(const FloatTile& tile, int rows) {
  for (int r = 0; r < rows; ++r) append(tile.row(r));
}

void TileRows::find_loose(const RowKernels& kernels) {
  loose_count_ = 0;
  for (int r = 0; r < count_; ++r) {
    if (!kernels.all_finite(all_[r], dtype_, columns_)) loose_[loose_count_++] = r;
  }
  leave_out_loose();
}

void TileRows::leave_out_loose() {
  if (loose_count_ == 0) return;
  std::copy(all_, all_ + count_, terms_);
  for (int i = 0; i < loose_count_; ++i) terms_[loose_[i]] = nullptr;
}

TileBand TileBand::take(Arena& arena, int max_rows, int max_keys) {
  TileBand band;
  band.by_row_ = arena.take<Range>(ceil_div(max_rows, kBandRows));
  band.by_key_ = arena.take<Range>(ceil_div(max_keys, kBandRows));
  return band;
}

void TileBand::set(const Visibility& visible, int32_t query, int heads, int queries, int32_t key,
                   int keys) {
  const int rows = heads * queries;
  for (int r = 0; r < rows; r += kBandRows) {
    const int last = std::min(r + kBandRows, rows) - 1;
    const bool one_head = r / queries == last / queries;
    const int32_t from = query + (one_head ? r % queries : 0);
    const int32_t to = query + (one_head ? last % queries : queries - 1);
    const int32_t begin = visible_keys(visible, from).begin - key;
    const int32_t end = visible_keys(visible, to).end - key;
    by_row_[r / kBandRows] = {clamp(begin, 0, keys), clamp(end, 0, keys)};
  }
  for (int j = 0; j < keys; j += kBandRows) {
    const int last = std::min(j + kBandRows, keys) - 1;
    const int32_t begin = clamp(visible_queries(visible, key + j).begin - query, 0, queries);
    const int32_t end = clamp(visible_queries(visible, key + last).end - query, 0, queries);
    by_key_[j / kBandRows] = {begin, begin < end ? (heads - 1) * queries + end : begin};
  }
}

void redo_loose_products(const RowKernels& kernels, const TileRows& left, const TileRows& right,
                         const FloatTile& products) {
  const auto redo = [&](int i, int j) {
    products.row(i)[j] = kernels.dot(left.row(i), right.row(j), left.dtype(), left.columns());
  };
  for (int i = 0; i < left.loose_count(); ++i) {
    for (int j = 0; j < right.count(); ++j) redo(left.loose(i), j);
  }
  for (int j = 0; j < right.loose_count(); ++j) {
    for (int i = 0; i < left.count(); ++i) redo(i, right.loose(j));
  }
}

}  // namespace ffpa::cpu
