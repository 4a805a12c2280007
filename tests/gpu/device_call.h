// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// A test call on a CUDA device: its tensors are mirrored there with the same strides and the same
// alignment, outputs and workspaces hold NaN before the call, and results are copied back.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "support/test_call.h"

namespace ffpa::test {

class DeviceCall {
 public:
  // `call` must outlive this one.
  DeviceCall(TestCall& call, cudaStream_t stream);
  ~DeviceCall();
  DeviceCall(const DeviceCall&) = delete;

  Status forward();
  Status backward();
  // Waits, and copies outputs and gradients into the memory of `call`.
  reference::Result results();

  AttentionInputs inputs;
  AttentionOptions options;
  ForwardOutputs outputs;
  BackwardInputs saved;
  BackwardOutputs gradients;

 private:
  // Host memory of one or several tensors (slices of one block overlap), and its copy.
  struct Region {
    char* host;
    size_t bytes;
    bool output;
    char* device = nullptr;
  };

  static void add_region(std::vector<Region>* regions, const Tensor& t, bool output);
  Tensor mirror(const Tensor& t) const;
  Workspace new_workspace(size_t bytes);
  char* allocate(size_t bytes);

  TestCall& call_;
  cudaStream_t stream_;
  std::vector<void*> allocations_;
  std::vector<Region> regions_;
};

// Throws std::runtime_error.
void check_cuda(cudaError_t error);

}  // namespace ffpa::test
