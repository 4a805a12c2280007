// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "gpu/sm80_device_call.h"

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
    : options(call.options), call_(call), stream_(stream) {
  const AttentionInputs& in = call.inputs;
  inputs = in;
  for (Tensor AttentionInputs::* t :
       {&AttentionInputs::q, &AttentionInputs::k, &AttentionInputs::v,
        &AttentionInputs::cu_seqlens_q, &AttentionInputs::cu_seqlens_k, &AttentionInputs::seqused_q,
        &AttentionInputs::seqused_k, &AttentionInputs::mask, &AttentionInputs::alibi_slopes,
        &AttentionInputs::sink}) {
    inputs.*t = mirror(in.*t, false);
  }
  outputs = {mirror(call.outputs.out, true), mirror(call.outputs.lse, true)};
  saved = {outputs.out, outputs.lse, mirror(call.saved.dout, false),
           mirror(call.saved.dlse, false)};
  for (Tensor BackwardOutputs::* t :
       {&BackwardOutputs::dq, &BackwardOutputs::dk, &BackwardOutputs::dv, &BackwardOutputs::dsink,
        &BackwardOutputs::dmask}) {
    gradients.*t = mirror(call.gradients.*t, true);
  }
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

Tensor DeviceCall::mirror(const Tensor& t, bool output) {
  if (!t.defined()) return t;
  Tensor d = t;
  d.device = DeviceType::kCuda;
  d.device_index = 0;
  const size_t bytes = bytes_spanned(t);
  if (bytes == 0) return d;
  auto* host = static_cast<char*>(t.data);
  // K and V may be one tensor.
  for (const Mirror& m : mirrors_) {
    if (m.host == host && m.bytes == bytes) {
      d.data = m.device;
      return d;
    }
  }
  const size_t offset = reinterpret_cast<uintptr_t>(host) % 256;
  char* device = allocate(bytes + offset) + offset;
  check_cuda(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_));
  mirrors_.push_back({host, device, bytes, output});
  d.data = device;
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
  for (const Mirror& m : mirrors_) {
    if (!m.output) continue;
    check_cuda(cudaMemcpyAsync(m.host, m.device, m.bytes, cudaMemcpyDeviceToHost, stream_));
  }
  check_cuda(cudaStreamSynchronize(stream_));
  using reference::read;
  return {read(call_.outputs.out),    read(call_.outputs.lse),  read(call_.gradients.dq),
          read(call_.gradients.dk),   read(call_.gradients.dv), read(call_.gradients.dsink),
          read(call_.gradients.dmask)};
}

}  // namespace ffpa::test
