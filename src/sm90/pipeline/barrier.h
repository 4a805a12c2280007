// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Barriers and buffers as byte offsets into shared memory: the same numbers on the GPU, in the
// protocol checker and in reports. Role code is compiled by nvcc for the GPU and by the host
// compiler for the checker.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define FFPA_ROLE __device__ __forceinline__
#define FFPA_UNROLL _Pragma("unroll")
#define FFPA_NO_UNROLL _Pragma("unroll 1")
#else
#define FFPA_ROLE inline
#define FFPA_UNROLL
#define FFPA_NO_UNROLL
#endif

namespace ffpa::sm90 {

struct Barrier {
  uint32_t offset;
};
struct Buffer {
  uint32_t offset, bytes;
};

}  // namespace ffpa::sm90
