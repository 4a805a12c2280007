// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The kernel of head dim 512 with a role that does not arrive. Stands in for the library's own.
#define FFPA_TEST_FAULT
#define FFPA_WAIT_TRIES 40000
#include "sm90/forward/kernel.cuh"

namespace ffpa::sm90 {
template cudaError_t launch_forward<ForwardConfig<512, DType::kBFloat16>>(const ForwardParams&, int,
                                                                          cudaStream_t);
cudaError_t set_fault_role(int role) { return cudaMemcpyToSymbol(fault_role, &role, sizeof(role)); }
}  // namespace ffpa::sm90
