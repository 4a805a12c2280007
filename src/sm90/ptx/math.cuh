// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "ffpa/tensor.h"

namespace ffpa::sm90::ptx {

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Two halves of the dtype, `lo` in the lower bits.
template <DType kDType>
__device__ __forceinline__ uint32_t pack(float lo, float hi) {
  static_assert(kDType == DType::kBFloat16 || kDType == DType::kFloat16);
  uint32_t r;
  if constexpr (kDType == DType::kBFloat16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  }
  return r;
}

template <DType kDType>
__device__ __forceinline__ float2 unpack(uint32_t x) {
  if constexpr (kDType == DType::kBFloat16) {
    return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
  } else {
    __half2 h;
    memcpy(&h, &x, 4);
    return __half22float2(h);
  }
}

}  // namespace ffpa::sm90::ptx
