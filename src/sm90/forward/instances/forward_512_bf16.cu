// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "sm90/forward/instances/instances.h"
#include "sm90/forward/instances/launch.cuh"

namespace ffpa::sm90 {

cudaError_t launch_forward_512_bf16(const ForwardParams& p, uint32_t ctas, cudaStream_t stream) {
  return launch<__nv_bfloat16>(p, ctas, stream);
}

}  // namespace ffpa::sm90
