// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "sm90/forward/instances/instances.h"
#include "sm90/forward/list.cuh"

namespace ffpa::sm90 {

cudaError_t launch_list(const ListParams& p, cudaStream_t stream) {
  list_work<<<1, kListThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace ffpa::sm90
