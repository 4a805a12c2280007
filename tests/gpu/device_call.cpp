// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "gpu/device_call.h"

#include <algorithm>
#include <stdexcept>

namespace ffpa::test {

void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

namespace {

size_t bytes_spanned(const Tensor& t) {
  if (t.numel() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < t.rank; ++i) last += (t.shape[i] - 1) * t.stride[i];
  return static_cast<size_t>((last + 1) * dtype_bytes(t.dtype));
}

}  // namespace

DeviceCall::DeviceCall(TestCall& call, cudaStream_t stream)
    : inputs(call.inputs),
      options(call.options),
      outputs(call.outputs),
      saved(call.saved),
      gradients(call.gradients),
      call_(call),
      stream_(stream) {
  Tensor* const read[] = {&inputs.q,
                          &inputs.k,
                          &inputs.v,
                          &inputs.mask,
                          &inputs.sink,
                          &inputs.alibi_slopes,
                          &inputs.seqused_q,
                          &inputs.cu_seqlens_q,
                          &inputs.cu_seqlens_k,
                          &inputs.seqused_k,
                          &saved.dout,
                          &saved.dlse};
  Tensor* const written[] = {&outputs.out,  &outputs.lse,     &gradients.dq,   &gradients.dk,
                             &gradients.dv, &gradients.dsink, &gradients.dmask};
  for (const Tensor* t : read) add_region(&regions_, *t, false);
  for (const Tensor* t : written) add_region(&regions_, *t, true);
  for (Region& r : regions_) {
    const size_t offset = reinterpret_cast<uintptr_t>(r.host) % 256;
    r.device = allocate(r.bytes + offset) + offset;
    check_cuda(cudaMemcpyAsync(r.device, r.host, r.bytes, cudaMemcpyHostToDevice, stream_));
  }
  for (Tensor* t : read) *t = mirror(*t);
  for (Tensor* t : written) *t = mirror(*t);
  saved.out = outputs.out;
  saved.lse = outputs.lse;
}

DeviceCall::~DeviceCall() {
  cudaStreamSynchronize(stream_);
  for (void* p : allocations_) cudaFree(p);
}

char* DeviceCall::allocate(size_t bytes) {
  void* p = nullptr;
  check_cuda(cudaMalloc(&p, bytes));
  allocations_.push_back(p);
  return static_cast<char*>(p);
}

// Regions that overlap become one.
void DeviceCall::add_region(std::vector<Region>* regions, const Tensor& t, bool output) {
  const size_t bytes = t.defined() ? bytes_spanned(t) : 0;
  if (bytes == 0) return;
  Region all{static_cast<char*>(t.data), bytes, output};
  std::erase_if(*regions, [&](const Region& r) {
    if (r.host >= all.host + all.bytes || all.host >= r.host + r.bytes) return false;
    char* const end = std::max(r.host + r.bytes, all.host + all.bytes);
    all.host = std::min(r.host, all.host);
    all.bytes = static_cast<size_t>(end - all.host);
    all.output |= r.output;
    return true;
  });
  regions->push_back(all);
}

Tensor DeviceCall::mirror(const Tensor& t) const {
  if (!t.defined()) return t;
  Tensor d = t;
  d.device = DeviceType::kCuda;
  d.device_index = 0;
  auto* host = static_cast<char*>(t.data);
  for (const Region& r : regions_) {
    if (r.host <= host && host < r.host + r.bytes) d.data = r.device + (host - r.host);
  }
  return d;
}

Workspace DeviceCall::new_workspace(size_t bytes) {
  if (bytes == 0) return {};
  char* data = allocate(bytes);
  check_cuda(cudaMemsetAsync(data, kPoison, bytes, stream_));
  return {data, bytes};
}

Status DeviceCall::forward() {
  size_t bytes = 0;
  FFPA_RETURN_IF_ERROR(forward_workspace_bytes(inputs, options, &bytes));
  return ffpa::forward(inputs, options, outputs, new_workspace(bytes), stream_);
}

Status DeviceCall::backward() {
  size_t bytes = 0;
  FFPA_RETURN_IF_ERROR(backward_workspace_bytes(inputs, options, gradients, &bytes));
  return ffpa::backward(inputs, options, saved, gradients, new_workspace(bytes), stream_);
}

reference::Result DeviceCall::results() {
  for (const Region& r : regions_) {
    if (!r.output) continue;
    check_cuda(cudaMemcpyAsync(r.host, r.device, r.bytes, cudaMemcpyDeviceToHost, stream_));
  }
  check_cuda(cudaStreamSynchronize(stream_));
  using reference::read;
  return {read(call_.outputs.out),    read(call_.outputs.lse),  read(call_.gradients.dq),
          read(call_.gradients.dk),   read(call_.gradients.dv), read(call_.gradients.dsink),
          read(call_.gradients.dmask)};
}

}  // namespace ffpa::test
