// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Times the portable GPU path by CUDA events: median of back-to-back launches after a warm-up, on
// random data. TFLOP/s count 4 N_q N_k D of the forward and 10 of the backward, causal half.
//   sm80_bench [substring of a case's name]
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "ffpa/attention.h"

namespace {

using ffpa::Tensor;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}
bool ok(const ffpa::Status& s) {
  if (!s.ok()) std::printf("  %s\n", s.message().c_str());
  return s.ok();
}

struct Shape {
  const char* name;
  int64_t heads_q, heads_kv, nq, nk, d;
  bool causal;
  bool backward;
  bool mask = false;
  double dropout = 0;
};

constexpr Shape kShapes[] = {
    {"D256 16k", 32, 32, 16384, 16384, 256, false, true},
    {"D256 16k causal", 32, 32, 16384, 16384, 256, true, true},
    {"D512 8k", 32, 32, 8192, 8192, 512, false, true},
    {"D512 8k causal", 32, 32, 8192, 8192, 512, true, true},
    {"D640 8k", 32, 32, 8192, 8192, 640, false, true},
    {"D640 8k causal", 32, 32, 8192, 8192, 640, true, true},
    {"D1024 8k", 32, 32, 8192, 8192, 1024, false, true},
    {"D320 8k", 32, 32, 8192, 8192, 320, false, true},
    {"D128 8k", 32, 32, 8192, 8192, 128, false, true},
    {"D64 8k", 32, 32, 8192, 8192, 64, false, true},
    {"D512 4k mask", 16, 16, 4096, 4096, 512, false, true, true},
    {"D512 4k dropout", 16, 16, 4096, 4096, 512, false, true, false, 0.1},
    {"decode 8k D512", 32, 4, 1, 8192, 512, true, false},
    {"decode 128k D512", 32, 4, 1, 131072, 512, true, false},
};

// Random bf16 in (-2, 2), repeated in blocks.
class Device {
 public:
  Device() : noise_(1 << 20) {
    uint64_t x = 88172645463325252ULL;
    for (uint16_t& n : noise_) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      const float f = static_cast<float>(static_cast<int64_t>(x >> 40) - (1 << 23)) / (1 << 22);
      uint32_t bits;
      std::memcpy(&bits, &f, 4);
      n = static_cast<uint16_t>(bits >> 16);
    }
  }
  ~Device() {
    for (void* p : allocations_) cudaFree(p);
  }

  void* allocate(size_t bytes) {
    void* p = nullptr;
    check(cudaMalloc(&p, std::max<size_t>(bytes, 256)));
    allocations_.push_back(p);
    return p;
  }
  Tensor tensor(std::vector<int64_t> shape, ffpa::DType dtype, bool random) {
    Tensor t;
    t.dtype = dtype;
    t.device = ffpa::DeviceType::kCuda;
    t.rank = static_cast<int32_t>(shape.size());
    int64_t stride = 1;
    for (int i = t.rank - 1; i >= 0; --i) {
      t.shape[i] = shape[i];
      t.stride[i] = stride;
      stride *= shape[i];
    }
    const size_t bytes = stride * dtype_bytes(dtype), block = noise_.size() * 2;
    t.data = allocate(bytes);
    for (size_t at = 0; random && at < bytes; at += block) {
      // A different start for each block.
      const size_t n = std::min(block, bytes - at), shift = at / block * 2 * 4099 % (block / 2);
      const size_t m = std::min(n, block - shift);
      auto* to = static_cast<char*>(t.data) + at;
      const auto* from = reinterpret_cast<const char*>(noise_.data());
      check(cudaMemcpyAsync(to, from + shift, m, cudaMemcpyHostToDevice));
      check(cudaMemcpyAsync(to + m, from, n - m, cudaMemcpyHostToDevice));
    }
    return t;
  }

 private:
  std::vector<uint16_t> noise_;
  std::vector<void*> allocations_;
};

double median_ms(const std::function<bool()>& launch) {
  cudaEvent_t events[2];
  for (cudaEvent_t& e : events) check(cudaEventCreate(&e));
  std::vector<float> times;
  float all = 0;
  for (int i = 0; i < 60 && (i < 4 || all < 250); ++i) {
    check(cudaEventRecord(events[0]));
    if (!launch()) return -1;
    check(cudaEventRecord(events[1]));
    check(cudaEventSynchronize(events[1]));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, events[0], events[1]));
    if (i > 0) times.push_back(ms), all += ms;
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void run(const Shape& s) {
  Device device;
  const auto kHalf = ffpa::DType::kBFloat16;
  ffpa::AttentionInputs in;
  in.q = device.tensor({1, s.heads_q, s.nq, s.d}, kHalf, true);
  in.k = device.tensor({1, s.heads_kv, s.nk, s.d}, kHalf, true);
  in.v = device.tensor({1, s.heads_kv, s.nk, s.d}, kHalf, true);
  if (s.mask) in.mask = device.tensor({1, 1, s.nq, s.nk}, kHalf, true);
  ffpa::AttentionOptions options;
  options.causal = s.causal;
  options.dropout_p = s.dropout;
  options.backend = ffpa::Backend::kSm80;
  ffpa::ForwardOutputs out;
  out.out = device.tensor({1, s.heads_q, s.nq, s.d}, kHalf, false);
  out.lse = device.tensor({1, s.heads_q, s.nq}, ffpa::DType::kFloat32, false);
  size_t bytes = 0;
  if (!ok(forward_workspace_bytes(in, options, &bytes))) return;
  const ffpa::Workspace forward_space{device.allocate(bytes), bytes};
  const double forward_ms = median_ms([&] { return ok(forward(in, options, out, forward_space)); });
  const double flops =
      4.0 * s.heads_q * s.nq * s.nk * s.d * (s.causal && s.nq == s.nk ? 0.5 : 1) * 1e-9;
  std::printf("%-18s forward %9.3f ms %7.1f TFLOP/s", s.name, forward_ms, flops / forward_ms);
  if (s.nq == 1) {
    const double kv_bytes = 4.0 * s.heads_kv * s.nk * s.d;
    std::printf(", K and V at %.0f GB/s", kv_bytes / forward_ms * 1e-6);
  }
  if (s.backward) {
    ffpa::BackwardInputs saved{
        out.out, out.lse, device.tensor({1, s.heads_q, s.nq, s.d}, kHalf, true), {}};
    ffpa::BackwardOutputs g;
    g.dq = device.tensor({1, s.heads_q, s.nq, s.d}, kHalf, false);
    g.dk = device.tensor({1, s.heads_kv, s.nk, s.d}, kHalf, false);
    g.dv = device.tensor({1, s.heads_kv, s.nk, s.d}, kHalf, false);
    if (!ok(backward_workspace_bytes(in, options, g, &bytes))) return;
    const ffpa::Workspace space{device.allocate(bytes), bytes};
    const double ms = median_ms([&] { return ok(backward(in, options, saved, g, space)); });
    std::printf(", backward %9.3f ms %7.1f TFLOP/s", ms, 2.5 * flops / ms);
    const auto only = [&](Tensor ffpa::BackwardOutputs::* t) {
      ffpa::BackwardOutputs one;
      one.*t = g.*t;
      return median_ms([&] { return ok(backward(in, options, saved, one, space)); });
    };
    std::printf(" (dq %.2f, dk %.2f, dv %.2f ms)", only(&ffpa::BackwardOutputs::dq),
                only(&ffpa::BackwardOutputs::dk), only(&ffpa::BackwardOutputs::dv));
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Shape& s : kShapes) {
    if (argc < 2 || std::strstr(s.name, argv[1])) run(s);
  }
  return 0;
}
