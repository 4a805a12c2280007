// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include "sm90/forward/device_machine.cuh"
#include "sm90/forward/roles.h"

namespace ffpa::sm90 {

template <class T>
__global__ void __launch_bounds__(Forward512::kThreads, 1)
    forward_kernel(const __grid_constant__ ForwardParams params) {
  using S = SharedMemory<Forward512>;
  const uint32_t smem = ptx::shared_address(ffpa_shared);
  ptx::declare_waits();

  if (threadIdx.x < S::kNumBarriers) {
    const auto entry = S::entry(threadIdx.x);
    ptx::mbarrier_init(smem + entry.barrier.offset, entry.arrivals);
    ptx::fence_mbarrier_init();
  }
  if (threadIdx.x == 0) ptx::store_shared(smem + S::kReport, params.report);
  __syncthreads();

  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // uniform, and ptxas knows it
  if (warpgroup == 2) {
    ptx::setmaxnreg_dec<Forward512::kProducerRegisters>();
    const int warp = __shfl_sync(~0u, threadIdx.x % 128 / 32, 0);
    if (warp < 2) {
      DeviceMachine<T> machine(params, smem, 2 + warp);
      produce(machine, warp);
    }
  } else {
    ptx::setmaxnreg_inc<Forward512::kConsumerRegisters>();
    DeviceMachine<T> machine(params, smem, warpgroup);
    Consumer<DeviceMachine<T>>(machine, warpgroup).run();
  }

  if (params.heads > 0) return;  // always
  ptx::report_expired_wait<S::kTiles, S::kReport>();
}

}  // namespace ffpa::sm90
