// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "device.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#ifdef FFPA_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace ffpa::app {
namespace {

class Cpu : public Device {
 public:
  DeviceType type() const override { return DeviceType::kCpu; }
  std::string name() const override {
    return "CPU, " + std::to_string(std::thread::hardware_concurrency()) + " threads";
  }
  std::shared_ptr<void> allocate(size_t bytes) override {
    void* data = std::aligned_alloc(256, (bytes / 256 + 1) * 256);
    if (!data) throw std::bad_alloc();
    return {data, std::free};
  }
  Status upload(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  Status download(void* to, const void* from, size_t bytes) override {
    return upload(to, from, bytes);
  }
  Status finish() override { return {}; }
};

#ifdef FFPA_WITH_CUDA
Status checked(cudaError_t error) {
  return error == cudaSuccess ? Status() : Status::runtime(cudaGetErrorString(error));
}

class Gpu : public Device {
 public:
  DeviceType type() const override { return DeviceType::kCuda; }
  std::string name() const override {
    cudaDeviceProp properties{};
    return cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? properties.name : "NVIDIA GPU";
  }
  std::shared_ptr<void> allocate(size_t bytes) override {
    void* data = nullptr;
    if (cudaMalloc(&data, bytes + 1) != cudaSuccess) throw std::bad_alloc();
    return {data, cudaFree};
  }
  Status upload(void* to, const void* from, size_t bytes) override {
    return checked(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
  }
  Status download(void* to, const void* from, size_t bytes) override {
    return checked(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
  }
  Status finish() override { return checked(cudaDeviceSynchronize()); }
};
#endif

}  // namespace

std::unique_ptr<Device> cpu_device() { return std::make_unique<Cpu>(); }

std::unique_ptr<Device> gpu_device() {
#ifdef FFPA_WITH_CUDA
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return std::make_unique<Gpu>();
#endif
  return nullptr;
}

}  // namespace ffpa::app
