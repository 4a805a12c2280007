// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Between the CTAs of a cluster.
#pragma once

#include <cstdint>

namespace ffpa::sm90::ptx {

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
// The address in the CTA `rank` that `address` is here.
__device__ __forceinline__ uint32_t map_to_rank(uint32_t address, uint32_t rank) {
  uint32_t r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
  return r;
}
// By all threads: what was written before is visible in the whole cluster after.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}
// `barrier` by map_to_rank.
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// 16 bytes to another CTA; they count for its mbarrier. Both addresses by map_to_rank.
__device__ __forceinline__ void st_async_v4(uint32_t to, const uint32_t* x, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
      "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(barrier)
      : "memory");
}

}  // namespace ffpa::sm90::ptx
