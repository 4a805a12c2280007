// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

namespace ffpa {

enum class DType : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kBool,
  kInt32,
  kInt64,
  kFloat64,
  kOther
};
enum class DeviceType : uint8_t { kCpu, kCuda, kOther };

// "float32", "bfloat16", ...
const char* dtype_name(DType dtype);
// Bytes of one element; 0 for kOther.
int dtype_bytes(DType dtype);

// A borrowed view of strided memory: the library never owns, frees or resizes it.
// Strides count elements. Rank 0 with null data means "not given" (see `defined`).
struct Tensor {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::kOther;
  DeviceType device = DeviceType::kCpu;
  int32_t device_index = 0;
  int32_t rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};

  bool defined() const { return rank > 0; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[i];
    return rank > 0 ? n : 0;
  }

  // A contiguous CPU tensor over `data`.
  static Tensor contiguous(void* data, DType dtype, std::initializer_list<int64_t> shape);
};

}  // namespace ffpa
