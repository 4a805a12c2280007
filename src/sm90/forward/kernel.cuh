// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include "sm90/forward/launch.h"
#include "sm90/forward/machine.cuh"
#include "sm90/pipeline/start.cuh"

namespace ffpa::sm90 {

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    forward_kernel(const __grid_constant__ ForwardParams params) {
  using S = typename Config::SharedMemory;
  const uint32_t smem = ptx::shared_address(ffpa_shared);
  ptx::declare_waits();

  init_barriers<S>(smem);
  if (threadIdx.x == 0) ptx::store_shared(smem + S::kReport, int64_t(params.report));
  __syncthreads();

  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // uniform, and ptxas knows it
  if (warpgroup == 2) {
    ptx::setmaxnreg_dec<Config::kProducerRegisters>();
    const int warp = __shfl_sync(~0u, threadIdx.x % 128 / 32, 0);
    if (warp < 2) {
      ForwardMachine<Config> machine(params, smem, 2 + warp);
      if constexpr (Config::kSplitRows) {
        produce_rows(machine, warp);
      } else {
        produce(machine, warp);
      }
    } else if (warp == 2) {
      ForwardMachine<Config> machine(params, smem, 4);
      schedule(machine);
    }
  } else {
    ptx::setmaxnreg_inc<Config::kConsumerRegisters>();
    ForwardMachine<Config> machine(params, smem, warpgroup);
    if constexpr (Config::kSplitRows) {
      RowsConsumer<ForwardMachine<Config>>(machine, warpgroup).run();
    } else if constexpr (Config::kColumns0 == Config::kColumns1) {
      Consumer<ForwardMachine<Config>, Config::kColumns0>(machine, warpgroup).run();
    } else if (warpgroup == 0) {
      Consumer<ForwardMachine<Config>, Config::kColumns0>(machine, 0).run();
    } else {
      Consumer<ForwardMachine<Config>, Config::kColumns1>(machine, 1).run();
    }
  }

  if (params.head_dim_v >= 0) return;  // always
  ptx::report_expired_wait<S::kReport, S::kRoleTiles>(params.kernel);
}

template <class Config>
cudaError_t launch_forward(const ForwardParams& params, int ctas, cudaStream_t stream) {
  constexpr uint32_t kBytes = Config::SharedMemory::kBytes;
  const cudaError_t error = cudaFuncSetAttribute(
      forward_kernel<Config>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  forward_kernel<Config><<<ctas, Config::kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace ffpa::sm90
