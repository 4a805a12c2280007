// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Times the forward or the backward on a GPU by CUDA events, with a cuBLAS product of 8192^3 before
// every call.
//   ffpa_gpu_bench [CASE...]
//     a case: dense|packed:HEAD_DIM:HEADS_Q:HEADS_KV:causal|full:[BATCHx]N
//   FFPA_BENCH_PASS=backward: the backward instead
//   FFPA_BENCH_BACKEND=sm80|sm90; FFPA_BENCH_LIMIT=BYTES of the backward's workspace
//   FFPA_BENCH_STEADY=1: also back to back for a second
// Power and clock are read while the device works. TFLOP/s count 4 D (backward: 10 D) for every
// visible pair, exactly. Medians. One JSON line a case.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <library_types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ffpa/attention.h"

namespace {

using ffpa::DType;
using ffpa::Tensor;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}
void check(const ffpa::Status& s) {
  if (s.ok()) return;
  std::printf("%s\n", s.message().c_str());
  std::exit(1);
}

bool wants_backward() {
  const char* pass = std::getenv("FFPA_BENCH_PASS");
  return pass && std::strcmp(pass, "backward") == 0;
}

struct Shape {
  std::string name;
  bool packed = false, causal = false;
  int64_t head_dim = 0, heads_q = 0, heads_kv = 0, batch = 1, length = 0;

  double flops() const {
    const double n = double(length), pairs = causal ? n * (n + 1) / 2 : n * n;
    return (wants_backward() ? 10.0 : 4.0) * double(head_dim * heads_q * batch) * pairs;
  }
};

Shape parse(const char* text) {
  Shape s;
  s.name = text;
  char layout[16], mask[16], size[32];
  long d, hq, hkv;
  if (std::sscanf(text, "%15[^:]:%ld:%ld:%ld:%15[^:]:%31s", layout, &d, &hq, &hkv, mask, size) !=
      6) {
    std::printf("not a case: %s\n", text);
    std::exit(2);
  }
  s.packed = std::strcmp(layout, "packed") == 0;
  s.causal = std::strcmp(mask, "causal") == 0;
  s.head_dim = d, s.heads_q = hq, s.heads_kv = hkv;
  const char* x = std::strchr(size, 'x');
  if (x) s.batch = std::atol(size);
  s.length = std::atol(x ? x + 1 : size);
  return s;
}

// Normal bf16 numbers, a block repeated from different starts.
class Memory {
 public:
  Memory() : noise_(size_t{1} << 22) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (uint16_t& n : noise_) {
      const float f = normal(random);
      uint32_t bits;
      std::memcpy(&bits, &f, 4);
      n = uint16_t(bits >> 16);
    }
  }
  void* allocate(size_t bytes) {
    void* p = nullptr;
    check(cudaMalloc(&p, std::max<size_t>(bytes, 256)));
    allocations_.push_back(p);
    return p;
  }
  void* random(size_t bytes) {
    char* p = static_cast<char*>(allocate(bytes));
    const size_t block = noise_.size() * 2;
    for (size_t at = 0; at < bytes; at += block) {
      const size_t n = std::min(block, bytes - at), shift = at / block * 2 * 40993 % block;
      const size_t m = std::min(n, block - shift);
      const char* from = reinterpret_cast<const char*>(noise_.data());
      check(cudaMemcpy(p + at, from + shift, m, cudaMemcpyHostToDevice));
      check(cudaMemcpy(p + at + m, from, n - m, cudaMemcpyHostToDevice));
    }
    return p;
  }
  void free_all() {
    for (void* p : allocations_) cudaFree(p);
    allocations_.clear();
  }

 private:
  std::vector<uint16_t> noise_;
  std::vector<void*> allocations_;
};

Tensor tensor(void* data, DType dtype, std::vector<int64_t> shape) {
  Tensor t;
  t.data = data;
  t.dtype = dtype;
  t.device = ffpa::DeviceType::kCuda;
  t.rank = int32_t(shape.size());
  int64_t stride = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    t.shape[i] = shape[i];
    t.stride[i] = stride;
    stride *= shape[i];
  }
  return t;
}

struct Call {
  ffpa::AttentionInputs in;
  ffpa::AttentionOptions options;
  ffpa::ForwardOutputs out;
  ffpa::BackwardInputs saved;
  ffpa::BackwardOutputs gradients;
  ffpa::Workspace workspace;
  bool backward = false;

  void run() const {
    check(backward ? ffpa::backward(in, options, saved, gradients, workspace)
                   : ffpa::forward(in, options, out, workspace));
  }
};

Call make_call(const Shape& s, Memory* memory) {
  Call c;
  const auto rows = [&](int64_t heads, bool random) {
    const size_t bytes = size_t(s.batch * heads * s.length * s.head_dim * 2);
    void* p = random ? memory->random(bytes) : memory->allocate(bytes);
    return s.packed ? tensor(p, DType::kBFloat16, {s.batch * s.length, heads, s.head_dim})
                    : tensor(p, DType::kBFloat16, {s.batch, heads, s.length, s.head_dim});
  };
  c.in.q = rows(s.heads_q, true);
  c.in.k = rows(s.heads_kv, true);
  c.in.v = rows(s.heads_kv, true);
  c.out.out = rows(s.heads_q, false);
  void* lse = memory->allocate(size_t(s.batch * s.heads_q * s.length * 4));
  c.out.lse = s.packed ? tensor(lse, DType::kFloat32, {s.heads_q, s.batch * s.length})
                       : tensor(lse, DType::kFloat32, {s.batch, s.heads_q, s.length});
  if (s.packed) {
    std::vector<int32_t> cu;
    for (int64_t b = 0; b <= s.batch; ++b) cu.push_back(int32_t(b * s.length));
    void* p = memory->allocate(cu.size() * 4);
    check(cudaMemcpy(p, cu.data(), cu.size() * 4, cudaMemcpyHostToDevice));
    c.in.cu_seqlens_q = c.in.cu_seqlens_k = tensor(p, DType::kInt32, {s.batch + 1});
    c.in.max_seqlen_q = c.in.max_seqlen_k = s.length;
  }
  c.options.causal = s.causal;
  const char* backend = std::getenv("FFPA_BENCH_BACKEND");
  if (backend) {
    c.options.backend =
        std::strcmp(backend, "sm80") == 0 ? ffpa::Backend::kSm80 : ffpa::Backend::kSm90;
  }
  check(ffpa::forward_workspace_bytes(c.in, c.options, &c.workspace.bytes));
  c.workspace.data = memory->allocate(c.workspace.bytes);
  if (!wants_backward()) return c;
  c.run();
  c.backward = true;
  c.saved = {c.out.out, c.out.lse, rows(s.heads_q, true), {}};
  c.gradients.dq = rows(s.heads_q, false);
  c.gradients.dk = rows(s.heads_kv, false);
  c.gradients.dv = rows(s.heads_kv, false);
  const char* limit = std::getenv("FFPA_BENCH_LIMIT");
  if (limit) c.options.workspace_limit = std::atoll(limit);
  check(ffpa::backward_workspace_bytes(c.in, c.options, c.gradients, &c.workspace.bytes));
  c.workspace.data = memory->allocate(c.workspace.bytes);
  return c;
}

// C = A B, 8192^3 in bf16; does nothing where there is no cuBLAS.
class Product {
 public:
  static constexpr int kN = 8192;
  static constexpr double kFlops = 2.0 * kN * kN * kN;

  explicit Product(Memory* memory) {
    const char* path = std::getenv("FFPA_BENCH_CUBLAS");
    void* library = dlopen(path ? path : "libcublas.so.13", RTLD_NOW);
    if (!library) return;
    const auto create = reinterpret_cast<int (*)(void**)>(dlsym(library, "cublasCreate_v2"));
    gemm_ = reinterpret_cast<Gemm>(dlsym(library, "cublasGemmEx"));
    if (!create || create(&handle_) != 0) gemm_ = nullptr;
    const size_t bytes = size_t(kN) * kN * 2;
    a_ = memory->random(bytes), b_ = memory->random(bytes), c_ = memory->allocate(bytes);
  }
  bool available() const { return gemm_ != nullptr; }
  void run() const {
    const float one = 1, zero = 0;
    if (gemm_) {
      gemm_(handle_, kTransposed, kPlain, kN, kN, kN, &one, a_, CUDA_R_16BF, kN, b_, CUDA_R_16BF,
            kN, &zero, c_, CUDA_R_16BF, kN, kComputeFloat32, kDefaultAlgorithm);
    }
  }

 private:
  // As in cublas_api.h, which a build need not have.
  static constexpr int kPlain = 0, kTransposed = 1, kComputeFloat32 = 68, kDefaultAlgorithm = -1;
  using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, cudaDataType, int,
                       const void*, cudaDataType, int, const void*, void*, cudaDataType, int, int,
                       int);
  Gemm gemm_ = nullptr;
  void* handle_ = nullptr;
  void *a_ = nullptr, *b_ = nullptr, *c_ = nullptr;
};

// Power and SM clock of device 0 through NVML; zeros where there is none.
class Sensor {
 public:
  struct Reading {
    double watts = 0, megahertz = 0;
  };

  Sensor() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) return;
    const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
    const auto handle = reinterpret_cast<int (*)(unsigned, void**)>(
        dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
    if (!init || !handle || init() != 0 || handle(0, &device_) != 0) return;
    power_ = reinterpret_cast<Power>(dlsym(library, "nvmlDeviceGetPowerUsage"));
    clock_ = reinterpret_cast<Clock>(dlsym(library, "nvmlDeviceGetClockInfo"));
  }
  Reading read() const {
    unsigned milliwatts = 0, megahertz = 0;
    if (power_ && power_(device_, &milliwatts) != 0) milliwatts = 0;
    if (clock_ && clock_(device_, kSmClock, &megahertz) != 0) megahertz = 0;
    return {milliwatts * 1e-3, double(megahertz)};
  }

 private:
  static constexpr int kSmClock = 1;  // NVML_CLOCK_SM
  using Power = int (*)(void*, unsigned*);
  using Clock = int (*)(void*, int, unsigned*);
  void* device_ = nullptr;
  Power power_ = nullptr;
  Clock clock_ = nullptr;
};

// `meanwhile` runs on the host while the device works.
double milliseconds(
    int launches, const std::function<void()>& launch,
    const std::function<void()>& meanwhile = [] {}) {
  static cudaEvent_t events[2];
  if (!events[0]) check(cudaEventCreate(&events[0])), check(cudaEventCreate(&events[1]));
  check(cudaEventRecord(events[0]));
  for (int i = 0; i < launches; ++i) launch();
  check(cudaEventRecord(events[1]));
  meanwhile();
  check(cudaEventSynchronize(events[1]));
  float ms = 0;
  check(cudaEventElapsedTime(&ms, events[0], events[1]));
  return double(ms) / launches;
}
double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

// On a terminal only: lines of JSON go to stdout.
void show_progress(const std::string& name, size_t done, size_t all) {
  if (!isatty(STDERR_FILENO)) return;
  constexpr size_t kWidth = 30;
  const size_t filled = all > 0 ? done * kWidth / all : kWidth;
  std::fprintf(stderr, "\r\x1b[K[%s%s] %zu/%zu %s", std::string(filled, '#').c_str(),
               std::string(kWidth - filled, '.').c_str(), done, all, name.c_str());
  if (done == all) std::fprintf(stderr, "\n");
}

void run(const Shape& s, const Product& product, const Sensor& sensor, Memory* memory) {
  const Call call = make_call(s, memory);
  const auto ours = [&] { call.run(); };
  const double first = milliseconds(1, ours);
  const double warm = milliseconds(2, ours);
  const int launches = std::max(1, int(4 / warm));
  std::vector<double> times, products, watts, megahertz;
  const auto sense = [&] {
    const Sensor::Reading r = sensor.read();
    watts.push_back(r.watts), megahertz.push_back(r.megahertz);
  };
  for (int round = 0; round < 9; ++round) {
    products.push_back(milliseconds(1, [&] { product.run(); }));
    times.push_back(milliseconds(launches, ours, sense));
  }
  double steady = 0;
  if (std::getenv("FFPA_BENCH_STEADY")) {
    std::vector<double> all;
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::seconds(1)) {
      all.push_back(milliseconds(std::max(1, int(20 / warm)), ours));
    }
    steady = median({all.begin() + std::ptrdiff_t(all.size() / 2), all.end()});
  }
  const double ms = median(times), tflops = s.flops() / ms * 1e-9;
  const double cublas = product.available() ? Product::kFlops / median(products) * 1e-9 : 0;
  std::printf(
      "{\"case\": \"%s\", \"pass\": \"%s\", \"ms\": %.4f, \"tflops\": %.1f, \"cublas\": %.1f, "
      "\"steady\": %.1f, "
      "\"first_ms\": %.2f, \"watts\": %.0f, \"mhz\": %.0f}\n",
      s.name.c_str(), call.backward ? "backward" : "forward", ms, tflops, cublas,
      steady > 0 ? s.flops() / steady * 1e-9 : 0, first, median(watts), median(megahertz));
  std::fflush(stdout);
}

constexpr const char* kCases[] = {
    "dense:512:32:32:full:16384",     "dense:512:32:4:full:16384",
    "dense:512:32:32:causal:16384",   "dense:512:32:4:causal:16384",
    "dense:512:32:32:full:8192",      "dense:512:32:32:causal:8192",
    "packed:512:32:4:causal:3x2048",  "packed:512:32:4:causal:16x1024",
    "packed:512:32:4:causal:1x16384", "dense:320:32:32:full:8192",
    "dense:384:32:32:full:8192",      "dense:448:32:32:full:8192",
    "dense:256:32:32:full:16384",     "dense:256:32:32:causal:16384",
    "dense:128:32:32:full:16384",     "dense:128:32:32:causal:16384",
    "dense:192:32:32:full:16384",     "dense:64:32:32:full:16384",
    "dense:512:2:2:full:128",         "packed:512:2:2:causal:80000x16",
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> cases(argv + 1, argv + argc);
  if (cases.empty()) cases.assign(std::begin(kCases), std::end(kCases));
  Memory memory, product_memory;
  const Product product(&product_memory);
  for (int i = 0; i < 4; ++i) product.run();
  const Sensor sensor;
  for (size_t i = 0; i < cases.size(); ++i) {
    show_progress(cases[i], i, cases.size());
    run(parse(cases[i].c_str()), product, sensor, &memory);
    memory.free_all();
  }
  show_progress("", cases.size(), cases.size());
}
