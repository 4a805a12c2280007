// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cuda.h>

#include <cstdint>

namespace ffpa::sm90::ptx {

// True in one lane of a converged warp.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(elected));
  return elected;
}
__device__ __forceinline__ void tma_load_5d(uint32_t to, const CUtensorMap& map, uint32_t barrier,
                                            int x0, int x1, int x2, int x3, int x4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
      : "memory");
}
// Orders this thread's shared-memory stores before later reads by wgmma or TMA.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace ffpa::sm90::ptx
