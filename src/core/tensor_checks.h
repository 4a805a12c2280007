// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Checks of one tensor at a time. `name` is the argument's name in messages.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "core/problem.h"

namespace ffpa {

using Shape = std::vector<int64_t>;

std::string shape_text(const Shape& shape);
Shape shape_of(const Tensor& t);
std::string dtype_list(std::initializer_list<DType> dtypes);

// A given tensor of one of these dtypes, on `like`'s device.
Status check_dtype(const char* name, const Tensor& t, std::initializer_list<DType> dtypes);
Status check_device(const char* name, const Tensor& t, const Tensor& like);
// Exactly this shape; `meaning` explains it: "[batch, heads_q, seqlen_q]".
Status check_shape(const char* name, const Tensor& t, const Shape& shape, const char* meaning);
// Rank in 1..kMaxRank, no negative sizes or strides, offsets inside 62 bits.
Status check_layout(const char* name, const Tensor& t);
Status check_unit_last_stride(const char* name, const Tensor& t);
// Non-null where there are elements, and aligned to an element.
Status check_data(const char* name, const Tensor& t);
// No two indices of an output reach the same element.
Status check_writable(const char* name, const Tensor& t);

// Stride of dimension i; 0 where the dimension has one element, whatever the tensor says.
int64_t canonical_stride(const Tensor& t, int i);

}  // namespace ffpa
