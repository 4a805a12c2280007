// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "demo.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>

#include "device.h"
#include "reference.h"

namespace ffpa::app {
namespace {

using Clock = std::chrono::steady_clock;

uint16_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
float from_bf16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
}

// A tensor on the device, and how its values travel: as the call's dtype, from and to float.
struct Buffer {
  std::shared_ptr<void> data;
  Tensor tensor;
};

class Demo {
 public:
  Demo(const Shape& shape, Device& device) : shape_(shape), device_(device) {}

  Status run(int* exit_code) {
    std::printf("\n%s\non %s\n\n", shape_.text().c_str(), device_.name().c_str());
    FFPA_RETURN_IF_ERROR(prepare());
    FFPA_RETURN_IF_ERROR(explain(inputs_, options_, &why_));
    std::printf("running forward and backward ...\n");
    FFPA_RETURN_IF_ERROR(time_passes());
    *exit_code = compare();
    return {};
  }

 private:
  Buffer buffer(std::initializer_list<int64_t> shape, DType dtype) {
    Buffer b;
    b.tensor = Tensor::contiguous(nullptr, dtype, shape);
    b.data = device_.allocate(b.tensor.numel() * dtype_bytes(dtype));
    b.tensor.data = b.data.get();
    b.tensor.device = device_.type();
    return b;
  }

  // Random values, rounded to the dtype here and on the device alike.
  Status fill(const Buffer& b, Floats* values) {
    std::normal_distribution<float> normal;
    values->resize(b.tensor.numel());
    if (shape_.dtype == DType::kFloat32) {
      for (float& x : *values) x = normal(random_);
      return device_.upload(b.tensor.data, values->data(), values->size() * 4);
    }
    std::vector<uint16_t> bits(values->size());
    for (size_t i = 0; i < bits.size(); ++i) {
      bits[i] = to_bf16(normal(random_));
      (*values)[i] = from_bf16(bits[i]);
    }
    return device_.upload(b.tensor.data, bits.data(), bits.size() * 2);
  }

  Status prepare() {
    const int64_t t = shape_.tokens(), d = shape_.head_dim;
    q_ = buffer({t, shape_.heads_q, d}, shape_.dtype);
    k_ = buffer({t, shape_.heads_kv, d}, shape_.dtype);
    v_ = buffer({t, shape_.heads_kv, d}, shape_.dtype);
    dout_ = buffer({t, shape_.heads_q, d}, shape_.dtype);
    out_ = buffer({t, shape_.heads_q, d}, shape_.dtype);
    dq_ = buffer({t, shape_.heads_q, d}, shape_.dtype);
    dk_ = buffer({t, shape_.heads_kv, d}, shape_.dtype);
    dv_ = buffer({t, shape_.heads_kv, d}, shape_.dtype);
    lse_ = buffer({shape_.heads_q, t}, DType::kFloat32);
    FFPA_RETURN_IF_ERROR(fill(q_, &step_.q));
    FFPA_RETURN_IF_ERROR(fill(k_, &step_.k));
    FFPA_RETURN_IF_ERROR(fill(v_, &step_.v));
    FFPA_RETURN_IF_ERROR(fill(dout_, &step_.dout));
    const std::vector<int32_t> cu = shape_.cu_seqlens();
    cu_ = buffer({static_cast<int64_t>(cu.size())}, DType::kInt32);
    FFPA_RETURN_IF_ERROR(device_.upload(cu_.tensor.data, cu.data(), cu.size() * 4));
    inputs_.q = q_.tensor;
    inputs_.k = k_.tensor;
    inputs_.v = v_.tensor;
    inputs_.cu_seqlens_q = inputs_.cu_seqlens_k = cu_.tensor;
    inputs_.max_seqlen_q = inputs_.max_seqlen_k = shape_.max_seqlen();
    options_.causal = shape_.causal;
    return {};
  }

  Status run_forward(Workspace workspace) {
    return forward(inputs_, options_, {out_.tensor, lse_.tensor}, workspace);
  }
  Status run_backward(Workspace workspace) {
    return backward(inputs_, options_, {out_.tensor, lse_.tensor, dout_.tensor, {}}, gradients(),
                    workspace);
  }
  BackwardOutputs gradients() const { return {dq_.tensor, dk_.tensor, dv_.tensor, {}, {}}; }

  // Median seconds of a call, after one that warms up.
  template <class Call>
  Status median(size_t bytes, Call call, double* seconds) {
    const std::shared_ptr<void> memory = device_.allocate(bytes);
    std::vector<double> times;
    const int repeats = device_.type() == DeviceType::kCpu ? 3 : 20;
    for (int i = 0; i <= repeats; ++i) {
      const auto start = Clock::now();
      FFPA_RETURN_IF_ERROR(call(Workspace{memory.get(), bytes}));
      FFPA_RETURN_IF_ERROR(device_.finish());
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    std::sort(times.begin() + 1, times.end());
    *seconds = times[1 + repeats / 2];
    return {};
  }

  Status time_passes() {
    size_t bytes = 0;
    FFPA_RETURN_IF_ERROR(forward_workspace_bytes(inputs_, options_, &bytes));
    FFPA_RETURN_IF_ERROR(
        median(bytes, [&](Workspace w) { return run_forward(w); }, &forward_seconds_));
    FFPA_RETURN_IF_ERROR(backward_workspace_bytes(inputs_, options_, gradients(), &bytes));
    FFPA_RETURN_IF_ERROR(
        median(bytes, [&](Workspace w) { return run_backward(w); }, &backward_seconds_));
    const double flops = 4 * shape_.visible_pairs() * shape_.heads_q * shape_.head_dim;
    std::printf("\n%s\n%-10s %12s %14s %10s\n", why_.c_str(), "pass", "time", "tokens/s",
                "TFLOP/s");
    print_row("forward", forward_seconds_, flops);
    print_row("backward", backward_seconds_, 2.5 * flops);
    print_row("step", forward_seconds_ + backward_seconds_, 3.5 * flops);
    std::printf("(products of visible query-key pairs counted; median of repeated calls)\n\n");
    return {};
  }

  void print_row(const char* name, double seconds, double flops) const {
    std::printf("%-10s %9.3f ms %14.0f %10.3f\n", name, 1e3 * seconds,
                static_cast<double>(shape_.tokens()) / seconds, flops / seconds / 1e12);
  }

  // Relative L2 error over the heads compared. NaN where the copy fails.
  double error(const Buffer& b, const Doubles& expected, int64_t heads,
               const std::vector<int64_t>& compared) {
    const size_t n = expected.size();
    Floats values(n);
    std::vector<uint16_t> bits(shape_.dtype == DType::kFloat32 ? 0 : n);
    const bool wide = bits.empty();
    const Status status = device_.download(wide ? static_cast<void*>(values.data()) : bits.data(),
                                           b.tensor.data, n * dtype_bytes(shape_.dtype));
    if (!status.ok()) return std::numeric_limits<double>::quiet_NaN();
    for (size_t i = 0; i < bits.size(); ++i) values[i] = from_bf16(bits[i]);
    const int64_t share = heads / shape_.heads_kv;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; ++i) {
      const int64_t kv_head = static_cast<int64_t>(i) / shape_.head_dim % heads / share;
      if (std::find(compared.begin(), compared.end(), kv_head) == compared.end()) continue;
      difference += (values[i] - expected[i]) * (values[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    return std::sqrt(difference / norm);
  }

  // KV heads to compare: all of them where float64 takes seconds, else the first and the last.
  std::vector<int64_t> compared_heads() const {
    std::vector<int64_t> heads;
    const double flops = 14 * shape_.visible_pairs() * shape_.heads_q * shape_.head_dim;
    for (int64_t h = 0; h < shape_.heads_kv; ++h) {
      if (flops < 1e11 || h == 0 || h + 1 == shape_.heads_kv) heads.push_back(h);
    }
    return heads;
  }

  int compare() {
    const std::vector<int64_t> heads = compared_heads();
    std::printf("comparing %zu of %lld KV heads with a float64 reference on the CPU ...\n",
                heads.size(), static_cast<long long>(shape_.heads_kv));
    const bool terminal = isatty(STDOUT_FILENO);
    const Result exact = reference(shape_, step_, heads, [&](double share) {
      if (terminal) std::printf("\r  %3.0f %%", 100 * share);
      std::fflush(stdout);
    });
    std::printf("%s%-10s %14s %10s\n", terminal ? "\r         \r" : "", "tensor", "relative error",
                "bound");
    // A result rounded to bfloat16 alone is 1.7e-3 off; P and dS are rounded on the way.
    const double bound = shape_.dtype == DType::kFloat32 ? 1e-5 : 5e-3;
    bool good = true;
    const auto row = [&](const char* name, const Buffer& b, const Doubles& expected, int64_t n) {
      const double e = error(b, expected, n, heads);
      good &= e <= bound;
      std::printf("%-10s %14.2e %10.0e%s\n", name, e, bound, e <= bound ? "" : "  TOO LARGE");
    };
    row("O", out_, exact.out, shape_.heads_q);
    row("dQ", dq_, exact.dq, shape_.heads_q);
    row("dK", dk_, exact.dk, shape_.heads_kv);
    row("dV", dv_, exact.dv, shape_.heads_kv);
    std::printf("%s\n", good ? "all errors are within their bounds" : "FAILED");
    return good ? 0 : 1;
  }

  const Shape shape_;
  Device& device_;
  std::mt19937 random_{20260101};
  Buffer q_, k_, v_, dout_, out_, dq_, dk_, dv_, lse_, cu_;
  Step step_;
  AttentionInputs inputs_;
  AttentionOptions options_;
  std::string why_;
  double forward_seconds_ = 0, backward_seconds_ = 0;
};

int run_on(const Shape& shape, Device& device) {
  int exit_code = 1;
  const Status status = Demo(shape, device).run(&exit_code);
  if (!status.ok()) std::fprintf(stderr, "demo: %s\n", status.message().c_str());
  return status.ok() ? exit_code : 1;
}

// Does this build have kernels for the whole step on the GPU?
bool gpu_serves(const Shape& shape, std::string* why) {
  AttentionInputs inputs;
  const int64_t t = shape.tokens();
  inputs.q = Tensor::contiguous(nullptr, shape.dtype, {1, shape.heads_q, t, shape.head_dim});
  inputs.k = Tensor::contiguous(nullptr, shape.dtype, {1, shape.heads_kv, t, shape.head_dim});
  inputs.v = inputs.k;
  for (Tensor* tensor : {&inputs.q, &inputs.k, &inputs.v}) tensor->device = DeviceType::kCuda;
  size_t bytes = 0;
  const BackwardOutputs gradients{inputs.q, inputs.k, inputs.v, {}, {}};
  Status status = forward_workspace_bytes(inputs, {}, &bytes);
  if (status.ok()) status = backward_workspace_bytes(inputs, {}, gradients, &bytes);
  *why = status.message();
  return status.ok();
}

}  // namespace

int demo(Shape shape) {
  std::unique_ptr<Device> device = gpu_device();
  const bool given = !shape.lengths.empty();
  if (device) {
    if (!given) shape.lengths = {2048, 2048, 2048};
    std::string why;
    if (gpu_serves(shape, &why)) return run_on(shape, *device);
    std::printf("%s found, but %s\n", device->name().c_str(), why.c_str());
  } else {
    std::printf("no NVIDIA GPU: running on the CPU, with shorter sequences\n");
  }
  if (!given) shape.lengths = {256, 192, 320};
  device = cpu_device();
  return run_on(shape, *device);
}

}  // namespace ffpa::app
