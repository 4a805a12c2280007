// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// One kernel instance, one translation unit.
#pragma once

#include <cuda_runtime_api.h>

#include "sm90/forward/params.h"

namespace ffpa::sm90 {

cudaError_t launch_list(const ListParams& p, cudaStream_t stream);
cudaError_t launch_forward_512_bf16(const ForwardParams& p, uint32_t ctas, cudaStream_t stream);
cudaError_t launch_forward_512_fp16(const ForwardParams& p, uint32_t ctas, cudaStream_t stream);

}  // namespace ffpa::sm90
