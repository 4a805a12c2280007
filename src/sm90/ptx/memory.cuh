// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Shared memory by its 32-bit address.
#pragma once

#include <cstdint>

namespace ffpa::sm90::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void stmatrix_x4(uint32_t to, const uint32_t* r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
__device__ __forceinline__ float load_shared(uint32_t from) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from) : "memory");
  return x;
}
__device__ __forceinline__ int load_shared_int(uint32_t from) {
  int x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
  return x;
}
__device__ __forceinline__ int64_t load_shared_int64(uint32_t from) {
  int64_t x;
  asm volatile("ld.shared.u64 %0, [%1];" : "=l"(x) : "r"(from) : "memory");
  return x;
}
__device__ __forceinline__ void load_shared_v4(uint32_t* x, uint32_t from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, int x) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, int64_t x) {
  asm volatile("st.shared.u64 [%0], %1;" ::"r"(to), "l"(x) : "memory");
}

}  // namespace ffpa::sm90::ptx
