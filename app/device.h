// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Memory of the device that a call runs on: the CPU, or the first NVIDIA GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ffpa/ffpa.h"

namespace ffpa::app {

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceType type() const = 0;
  virtual std::string name() const = 0;
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;  // 256-byte aligned
  virtual Status upload(void* to, const void* from, size_t bytes) = 0;
  virtual Status download(void* to, const void* from, size_t bytes) = 0;
  virtual Status finish() = 0;  // waits for the work enqueued so far
};

std::unique_ptr<Device> cpu_device();
// Null without a GPU, or in a build without CUDA.
std::unique_ptr<Device> gpu_device();

}  // namespace ffpa::app
