// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include "sm80/attention/kernel.cuh"
#include "sm80/attention/launch.h"

namespace ffpa::sm80 {

template <class T, int kIndex, Op kOp>
cudaError_t launch_attention(const Params& p, bool general, int64_t blocks, cudaStream_t stream) {
  const auto kernel =
      general ? attention_kernel<T, kIndex, kOp, true> : attention_kernel<T, kIndex, kOp, false>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, p.memory.bytes);
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(blocks), Config<kIndex>::kThreads, p.memory.bytes, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace ffpa::sm80
