// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Small operations on the values of tensors and arrays.
#pragma once

#include <algorithm>
#include <cmath>

#include "reference/array.h"

namespace ffpa::test {

inline void fill(const Tensor& t, double value) {
  for (int64_t i = 0; i < t.numel(); ++i) {
    reference::store(t.data, t.dtype, reference::element_offset(t, i), value);
  }
}

// Element [b, h, i, d] of a tensor of rank 4.
inline void put(const Tensor& t, int64_t b, int64_t h, int64_t i, int64_t d, double value) {
  reference::store(t.data, t.dtype,
                   b * t.stride[0] + h * t.stride[1] + i * t.stride[2] + d * t.stride[3], value);
}

// Entries [begin, end) of one dimension.
inline reference::Array slice(const reference::Array& a, int64_t dimension, int64_t begin,
                              int64_t end) {
  std::vector<int64_t> shape = a.shape;
  shape[dimension] = end - begin;
  reference::Array part(shape);
  int64_t inner = 1;
  for (size_t d = dimension + 1; d < a.shape.size(); ++d) inner *= a.shape[d];
  for (int64_t i = 0; i < part.numel(); ++i) {
    const int64_t row = i / inner % shape[dimension], outer = i / inner / shape[dimension];
    part.data[i] = a.data[(outer * a.shape[dimension] + begin + row) * inner + i % inner];
  }
  return part;
}

// Rows of a packed array.
inline reference::Array rows(const reference::Array& a, int64_t begin, int64_t end) {
  return slice(a, 0, begin, end);
}

inline bool all_finite(const reference::Array& a) {
  return std::all_of(a.data.begin(), a.data.end(), [](double x) { return std::isfinite(x); });
}

}  // namespace ffpa::test
