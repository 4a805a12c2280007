// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "sm90/device.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "sm90/forward/params.h"
#include "sm90/forward/shared_memory.h"

namespace ffpa::sm90 {
namespace {

Status checked(const char* what, cudaError_t error) {
  if (error == cudaSuccess) return {};
  return Status::runtime(std::string(what) + ": " + cudaGetErrorString(error));
}

PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  static const auto encoder = [] {
    void* f = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault,
                                     &result);
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(f);
  }();
  return encoder;
}

std::string describe(const WaitReport& r) {
  static const char* const kRoles[] = {"consumer 0", "consumer 1", "producer 0", "producer 1"};
  using S = SharedMemory<Forward512>;
  std::string barrier = "?";
  for (int i = 0; i < S::kNumBarriers; ++i) {
    const auto e = S::entry(i);
    if (e.barrier.offset != r.barrier) continue;
    barrier = e.event;
    if (e.w >= 0) barrier += "[" + std::to_string(e.w) + "]";
    if (e.s >= 0) barrier += "[" + std::to_string(e.s) + "]";
  }
  return std::string("sm90_forward_512 gave up waiting: ") + kRoles[r.role & 3] + " of CTA " +
         std::to_string(r.cta) + " for " + barrier + ", parity " + std::to_string(r.parity) +
         ", work tile " + std::to_string(r.tile) + ", head " + std::to_string(r.head);
}

// Host memory may be allocated even while a stream is being captured.
Status allocate_report(WaitReport** host) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  FFPA_RETURN_IF_ERROR(checked("capture mode", cudaThreadExchangeStreamCaptureMode(&mode)));
  const cudaError_t error = cudaHostAlloc(reinterpret_cast<void**>(host), sizeof(WaitReport),
                                          cudaHostAllocMapped | cudaHostAllocPortable);
  FFPA_RETURN_IF_ERROR(checked("capture mode", cudaThreadExchangeStreamCaptureMode(&mode)));
  if (error == cudaSuccess) **host = {};
  return checked("host memory", error);
}

}  // namespace

DeviceGuard::DeviceGuard(int device) {
  status_ = checked("cudaGetDevice", cudaGetDevice(&before_));
  if (status_.ok() && before_ != device) {
    status_ = checked("cudaSetDevice", cudaSetDevice(device));
  }
}

DeviceGuard::~DeviceGuard() {
  if (before_ >= 0) cudaSetDevice(before_);
}

Status wait_report(int device, WaitReport** report) {
  static std::mutex mutex;
  static std::map<int, WaitReport*> reports;
  const std::lock_guard lock(mutex);
  WaitReport*& host = reports[device];
  if (!host) FFPA_RETURN_IF_ERROR(allocate_report(&host));
  if (const volatile uint32_t* expired = &host->expired; *expired) {
    return Status::runtime(describe(*host));
  }
  return checked("host memory",
                 cudaHostGetDevicePointer(reinterpret_cast<void**>(report), host, 0));
}

Status make_tensor_map(const MapShape& s, const char* name, CUtensorMap* map) {
  if (!tensor_map_encoder()) {
    return Status::runtime("the driver has no cuTensorMapEncodeTiled: it needs CUDA 12 or newer");
  }
  // Dimensions of one element are never stepped over; any valid stride will do.
  const auto bytes = [](int64_t stride, int64_t size) -> cuuint64_t {
    return size > 1 ? static_cast<cuuint64_t>(stride) * 2 : 16;
  };
  const auto at_least_one = [](int64_t n) { return static_cast<cuuint64_t>(std::max<int64_t>(n, 1)); };
  const cuuint64_t row = bytes(s.rows->row_stride, s.length);
  cuuint64_t dims[5] = {64, at_least_one(s.length), at_least_one(s.head_dim / 64),
                        at_least_one(s.heads), at_least_one(s.batch)};
  cuuint64_t strides[4] = {row, 128, bytes(s.rows->head_stride, s.heads),
                           bytes(s.rows->batch_stride, s.batch)};
  char* base = s.rows->data;
  if (s.packed) {
    dims[1] = kRaggedRows;
    dims[4] = at_least_one(s.length + 1);
    strides[3] = row;
    base -= row * kRaggedRows;
  }
  const cuuint32_t box[5] = {64, static_cast<cuuint32_t>(s.box_rows),
                             static_cast<cuuint32_t>(s.box_groups), 1, 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const auto type = s.dtype == DType::kBFloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const CUresult result = tensor_map_encoder()(
      map, type, 5, base, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  return Status::runtime(std::string(name) + ": the driver refused a tensor map (error " +
                         std::to_string(result) + ")");
}

}  // namespace ffpa::sm90
