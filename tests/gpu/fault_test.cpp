// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Proves the bounded waits: a kernel whose role `argv[1]` never arrives ends with an error, and the
// next call on the device tells who waited for what.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "gpu/device_call.h"

namespace ffpa::sm90 {
cudaError_t set_fault_role(int role);
}

int main(int argc, char** argv) {
  using namespace ffpa;
  test::Case c = test::packed_case(DType::kBFloat16, {200, 300}, {}, 2, 2, 512, true);
  test::TestCall call(c);
  test::DeviceCall device(call, nullptr);
  device.options.backend = Backend::kSm90;
  test::check_cuda(sm90::set_fault_role(argc > 1 ? std::atoi(argv[1]) : 0));
  const Status launched = device.forward();
  const auto start = std::chrono::steady_clock::now();
  const cudaError_t end = cudaDeviceSynchronize();
  const std::chrono::duration<double> used = std::chrono::steady_clock::now() - start;
  const Status next = ffpa::forward(device.inputs, device.options, device.outputs,
                                    {device.outputs.out.data, size_t{1} << 20}, nullptr);
  std::printf("launch: %s; end: %s after %.2f s; next call: %s\n",
              launched.ok() ? "ok" : launched.message().c_str(), cudaGetErrorString(end),
              used.count(), next.message().c_str());
  std::fflush(stdout);
  const bool told = next.message().find("gave up a wait") != std::string::npos;
  std::_Exit(launched.ok() && end != cudaSuccess && told ? 0 : 1);
}
