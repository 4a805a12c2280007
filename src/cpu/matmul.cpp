// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/matmul.h"

namespace ffpa::cpu {

const MatmulKernels& matmul_kernels(DType precision) {
#if defined(__x86_64__)
  if (isa() == Isa::kAmx) return amx_matmul_kernels(precision);
#else
  (void)precision;
#endif
  return simd_matmul_kernels(isa());
}

}  // namespace ffpa::cpu
