// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// What the library keeps for each device.
#pragma once

#include <cuda_runtime_api.h>

#include "ffpa/status.h"
#include "sm90/wait_report.h"

namespace ffpa::sm90 {

Status to_status(cudaError_t error);

// Makes a device current, and the one before again at the end.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  Status status() const { return to_status(error_); }

 private:
  cudaError_t error_ = cudaSuccess;
  int before_ = 0;
  bool changed_ = false;
};

struct Device {
  int sm_count = 0;
  // Host-mapped, so that it can be read after the kernel has trapped: the same memory as the host
  // and the device address it.
  const WaitReport* report = nullptr;
  WaitReport* device_report = nullptr;
};

// Of the current device. Allocates the report on the first call.
Status current_device(int index, const Device** device);

}  // namespace ffpa::sm90
