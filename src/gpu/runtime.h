// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The CUDA runtime, as the launchers of all GPU kernels use it.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "ffpa/status.h"

namespace ffpa {

inline Status to_status(cudaError_t error) {
  if (error == cudaSuccess) return {};
  return Status::runtime(std::string("CUDA: ") + cudaGetErrorString(error));
}

// Makes a device current, and the one before again at the end.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    error_ = cudaGetDevice(&before_);
    if (error_ == cudaSuccess && before_ != device) {
      error_ = cudaSetDevice(device);
      changed_ = error_ == cudaSuccess;
    }
  }
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  Status status() const { return to_status(error_); }

 private:
  cudaError_t error_ = cudaSuccess;
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace ffpa
