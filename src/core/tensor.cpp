// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "ffpa/tensor.h"

namespace ffpa {

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kBool:
      return "bool";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kFloat64:
      return "float64";
    case DType::kOther:
      break;
  }
  return "another dtype";
}

int dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kBool:
      return 1;
    case DType::kInt64:
    case DType::kFloat64:
      return 8;
    case DType::kOther:
      break;
  }
  return 0;
}

Tensor Tensor::contiguous(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  Tensor t;
  t.data = data;
  t.dtype = dtype;
  for (int64_t n : shape) {
    if (t.rank < kMaxRank) t.shape[t.rank++] = n;
  }
  int64_t stride = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    t.stride[i] = stride;
    stride *= t.shape[i];
  }
  return t;
}

}  // namespace ffpa
