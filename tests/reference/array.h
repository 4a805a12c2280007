// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Contiguous float64 arrays, and the way between them and the library's tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ffpa/tensor.h"

namespace ffpa::reference {

struct Array {
  std::vector<int64_t> shape;
  std::vector<double> data;

  Array() = default;
  explicit Array(std::vector<int64_t> dims, double fill = 0);

  bool defined() const { return !shape.empty(); }
  int64_t numel() const { return static_cast<int64_t>(data.size()); }
  // "[1, 0, 7]" of element number `flat`.
  std::string index_text(int64_t flat) const;
};

// The float nearest to x that `dtype` holds, ties to even. Other dtypes than floats: x.
float rounded(DType dtype, float x);
// Half the distance between 1 and the next number of `dtype`.
double unit_roundoff(DType dtype);

// Element `index` after `data`, of a tensor of `dtype`. Storing rounds to nearest even.
double load(const void* data, DType dtype, int64_t index);
void store(void* data, DType dtype, int64_t index, double value);

// Offset in elements of element number `flat` (row-major) of a strided tensor.
int64_t element_offset(const Tensor& t, int64_t flat);
Array read(const Tensor& t);
void write(const Tensor& t, const Array& values);

}  // namespace ffpa::reference
