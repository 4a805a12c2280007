// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cuda_runtime.h>

#include "sm90/forward/kernel.cuh"

namespace ffpa::sm90 {

template <class T>
cudaError_t launch(const ForwardParams& p, uint32_t ctas, cudaStream_t stream) {
  constexpr int kBytes = SharedMemory<Forward512>::kBytes;
  // Per device, so set at every launch; a host-side table look-up.
  const cudaError_t error = cudaFuncSetAttribute(
      forward_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  forward_kernel<T><<<ctas, Forward512::kThreads, kBytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace ffpa::sm90
