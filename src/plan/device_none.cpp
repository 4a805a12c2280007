// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Builds without CUDA.
#include "plan/device.h"

namespace ffpa {

Status device_sm(const Problem& p, int* sm) {
  *sm = 0;
  if (p.device == DeviceType::kCpu) return {};
  return Status::unsupported("q", "a CPU tensor, since this build has no CUDA kernels",
                             "a CUDA tensor");
}

}  // namespace ffpa
