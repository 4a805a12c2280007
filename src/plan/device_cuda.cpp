// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Builds with CUDA.
#include <cuda_runtime_api.h>

#include "plan/device.h"

namespace ffpa {

Status device_sm(const Problem& p, int* sm) {
  *sm = 0;
  if (p.device == DeviceType::kCpu) return {};
  int major = 0, minor = 0;
  cudaError_t error =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, p.device_index);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, p.device_index);
  }
  if (error != cudaSuccess) {
    return Status::runtime("device " + std::to_string(p.device_index) + ": " +
                           cudaGetErrorString(error));
  }
  *sm = major * 10 + minor;
  return {};
}

}  // namespace ffpa
