// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Places in shared memory, as byte offsets: the same numbers on the GPU and in the checker.
#pragma once

#include <cstdint>

#include "plan/host_device.h"

#ifdef __CUDACC__
#define FFPA_ROLE __device__ __forceinline__  // role code: one source, GPU ...
#define FFPA_UNROLL _Pragma("unroll")
#define FFPA_NO_UNROLL _Pragma("unroll 1")
#else
#define FFPA_ROLE inline  // ... and host, where the recorder runs it
#define FFPA_UNROLL
#define FFPA_NO_UNROLL
#endif

namespace ffpa::sm90 {

struct Barrier {
  uint32_t offset;  // bytes from the start of shared memory
};
struct Buffer {
  uint32_t offset, bytes;
};

// A line of a kernel's barrier table: what completes one phase. Read by the kernel, the checker and
// the wait report.
struct BarrierEntry {
  Barrier barrier;
  int arrivals;
  const char* event;
  int w, s;  // warpgroup and slot; -1: there is one only
};

// Bytes of dynamic shared memory that one CTA can have.
inline constexpr uint32_t kMaxSharedBytes = 232448;

}  // namespace ffpa::sm90
