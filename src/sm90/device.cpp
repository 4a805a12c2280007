// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "sm90/device.h"

#include <array>
#include <mutex>

namespace ffpa::sm90 {
namespace {

constexpr int kMaxDevices = 64;

// Lets the calling thread allocate while some stream is being captured.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

Status make_device(int index, Device* d) {
  const RelaxedCapture relaxed;
  FFPA_RETURN_IF_ERROR(
      to_status(cudaDeviceGetAttribute(&d->sm_count, cudaDevAttrMultiProcessorCount, index)));
  WaitReport* host = nullptr;
  FFPA_RETURN_IF_ERROR(to_status(
      cudaHostAlloc(reinterpret_cast<void**>(&host), sizeof(WaitReport), cudaHostAllocMapped)));
  *host = {};
  FFPA_RETURN_IF_ERROR(
      to_status(cudaHostGetDevicePointer(reinterpret_cast<void**>(&d->device_report), host, 0)));
  d->report = host;
  return {};
}

}  // namespace

Status current_device(int index, const Device** device) {
  static std::array<Device, kMaxDevices> devices;
  static std::mutex mutex;
  if (index < 0 || index >= kMaxDevices) {
    return Status::invalid_value("device", "an index below " + std::to_string(kMaxDevices),
                                 std::to_string(index));
  }
  const std::lock_guard lock(mutex);
  Device& d = devices[index];
  if (!d.report) FFPA_RETURN_IF_ERROR(make_device(index, &d));
  *device = &d;
  return {};
}

}  // namespace ffpa::sm90
