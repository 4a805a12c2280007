// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// How a Hopper tensor map counts the rows of a tensor (sm90/tensor_map.h): batch, head and row make
// one coordinate, in units of the strides' greatest common divisor.
#pragma once

#include <cstdint>
#include <numeric>

#include "core/problem.h"

namespace ffpa {

struct RowUnits {
  int64_t row_bytes;         // from row to row
  int64_t unit;              // bytes
  int64_t batch, head, row;  // strides in units
  int64_t last;              // the largest coordinate

  bool countable() const {
    constexpr int64_t kMaxCoordinate = (int64_t{1} << 31) - 1, kMaxStride = int64_t{1} << 40;
    return unit > 0 && last < kMaxCoordinate && row_bytes < kMaxStride && unit < kMaxStride;
  }
};

// Of halves. One row: its stride is never used, but a map needs one.
inline RowUnits row_units(const Rows& rows, int64_t batch, int64_t heads, int64_t length,
                          int64_t head_dim) {
  RowUnits u{};
  u.row_bytes = length > 1 ? rows.row_stride * 2 : (head_dim * 2 + 15) / 16 * 16;
  const int64_t head_bytes = rows.head_stride * 2, batch_bytes = rows.batch_stride * 2;
  u.unit = std::gcd(std::gcd(u.row_bytes, head_bytes), batch_bytes);
  if (u.unit == 0) return u;
  u.batch = batch_bytes / u.unit;
  u.head = head_bytes / u.unit;
  u.row = u.row_bytes / u.unit;
  u.last = (batch - 1) * u.batch + (heads - 1) * u.head + length * u.row;
  return u;
}

}  // namespace ffpa
