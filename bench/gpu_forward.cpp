// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The forward on a GPU: time and, on sampled rows, error against float64. One JSON line a case.
// usage: gpu_forward [sm80|sm90|auto] CASE...   CASE = HEADS_Q/HEADS_KV:LENGTHS[:causal][:dense]
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ffpa/ffpa.h"

namespace {

using namespace ffpa;

constexpr int64_t kHeadDim = 512;

#define CUDA(call)                                                              \
  do {                                                                          \
    const cudaError_t error_ = (call);                                          \
    if (error_ != cudaSuccess) {                                                \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_));      \
      std::exit(1);                                                             \
    }                                                                           \
  } while (false)

void require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

struct Case {
  std::string text;
  int64_t heads_q = 32, heads_kv = 32;
  std::vector<int32_t> lengths;
  bool causal = false, dense = false;

  int64_t tokens() const {
    int64_t n = 0;
    for (int32_t l : lengths) n += l;
    return n;
  }
  double pairs() const {
    double n = 0;
    for (double l : lengths) n += causal ? l * (l + 1) / 2 : l * l;
    return n;
  }
};

Case parse(const std::string& text) {
  Case c;
  c.text = text;
  int times = 1, length = 0, used = 0;
  const char* s = text.c_str();
  if (std::sscanf(s, "%ld/%ld:%n", &c.heads_q, &c.heads_kv, &used) < 2) std::exit(2);
  for (s += used; *s && *s != ':';) {
    if (std::sscanf(s, "%dx%d%n", &times, &length, &used) < 2) {
      times = 1;
      if (std::sscanf(s, "%d%n", &length, &used) < 1) std::exit(2);
    }
    c.lengths.insert(c.lengths.end(), times, length);
    s += used;
    if (*s == ',') ++s;
  }
  c.causal = text.find(":causal") != text.npos;
  c.dense = text.find(":dense") != text.npos;
  return c;
}

struct Run {
  explicit Run(const Case& c) : c(c) {
    const int64_t q = c.tokens() * c.heads_q * kHeadDim, k = c.tokens() * c.heads_kv * kHeadDim;
    fill(&q_host, q, 1);
    fill(&k_host, k, 2);
    fill(&v_host, k, 3);
    this->q = upload(q_host);
    this->k = upload(k_host);
    this->v = upload(v_host);
    CUDA(cudaMalloc(&out, 2 * q));
    CUDA(cudaMemset(out, 0xFF, 2 * q));  // NaN
    CUDA(cudaMalloc(&lse, 4 * c.tokens() * c.heads_q));
    std::vector<int32_t> cu = {0};
    for (int32_t l : c.lengths) cu.push_back(cu.back() + l);
    CUDA(cudaMalloc(&cu_seqlens, 4 * cu.size()));
    CUDA(cudaMemcpy(cu_seqlens, cu.data(), 4 * cu.size(), cudaMemcpyHostToDevice));
  }
  ~Run() {
    for (void* p : {q, k, v, out, lse, cu_seqlens, workspace.data}) cudaFree(p);
  }

  void fill(std::vector<__nv_bfloat16>* to, int64_t n, unsigned seed) {
    to->resize(n);
    std::minstd_rand random(seed);
    std::normal_distribution<float> normal;
    std::vector<__nv_bfloat16> some(1 << 16);  // drawing 10^9 normals takes minutes
    for (auto& x : some) x = __float2bfloat16(normal(random));
    uint64_t state = seed;
    for (int64_t i = 0; i < n; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      (*to)[i] = some[state >> 48];
    }
  }
  void* upload(const std::vector<__nv_bfloat16>& from) {
    void* to;
    CUDA(cudaMalloc(&to, 2 * from.size()));
    CUDA(cudaMemcpy(to, from.data(), 2 * from.size(), cudaMemcpyHostToDevice));
    return to;
  }

  // Packed [T, H, D]; dense: one sequence as [1, H, N, D], head by head.
  Tensor tensor(void* data, int64_t heads) const {
    Tensor t = c.dense ? Tensor::contiguous(data, DType::kBFloat16, {1, heads, c.tokens(), kHeadDim})
                       : Tensor::contiguous(data, DType::kBFloat16, {c.tokens(), heads, kHeadDim});
    t.device = DeviceType::kCuda;
    return t;
  }
  int64_t at(int64_t token, int64_t head, int64_t heads) const {
    return (c.dense ? head * c.tokens() + token : token * heads + head) * kHeadDim;
  }

  void prepare(Backend backend) {
    inputs.q = tensor(q, c.heads_q);
    inputs.k = tensor(k, c.heads_kv);
    inputs.v = tensor(v, c.heads_kv);
    outputs.out = tensor(out, c.heads_q);
    outputs.lse = c.dense ? Tensor::contiguous(lse, DType::kFloat32, {1, c.heads_q, c.tokens()})
                          : Tensor::contiguous(lse, DType::kFloat32, {c.heads_q, c.tokens()});
    outputs.lse.device = DeviceType::kCuda;
    if (!c.dense) {
      const auto n = static_cast<int64_t>(c.lengths.size()) + 1;
      inputs.cu_seqlens_q = Tensor::contiguous(cu_seqlens, DType::kInt32, {n});
      inputs.cu_seqlens_q.device = DeviceType::kCuda;
      inputs.cu_seqlens_k = inputs.cu_seqlens_q;
      inputs.max_seqlen_q = inputs.max_seqlen_k =
          *std::max_element(c.lengths.begin(), c.lengths.end());
    }
    options.causal = c.causal;
    options.backend = backend;
    require(forward_workspace_bytes(inputs, options, &workspace.bytes));
    CUDA(cudaMalloc(&workspace.data, workspace.bytes));
  }

  // Median milliseconds of `repeats` calls, back to back after `warm`.
  double time(int warm, int repeats) {
    std::vector<cudaEvent_t> events(repeats + 1);
    for (cudaEvent_t& e : events) CUDA(cudaEventCreate(&e));
    for (int i = 0; i < warm; ++i) require(forward(inputs, options, outputs, workspace));
    CUDA(cudaEventRecord(events[0]));
    for (int i = 1; i <= repeats; ++i) {
      require(forward(inputs, options, outputs, workspace));
      CUDA(cudaEventRecord(events[i]));
    }
    CUDA(cudaDeviceSynchronize());
    std::vector<float> ms(repeats);
    for (int i = 0; i < repeats; ++i) CUDA(cudaEventElapsedTime(&ms[i], events[i], events[i + 1]));
    for (cudaEvent_t e : events) cudaEventDestroy(e);
    std::nth_element(ms.begin(), ms.begin() + repeats / 2, ms.end());
    return ms[repeats / 2];
  }

  // Relative error of sampled rows of O, and largest error of their lse.
  void compare(double* o_error, double* lse_error) {
    std::vector<__nv_bfloat16> o(c.tokens() * c.heads_q * kHeadDim);
    std::vector<float> l(c.tokens() * c.heads_q);
    CUDA(cudaMemcpy(o.data(), out, 2 * o.size(), cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(l.data(), lse, 4 * l.size(), cudaMemcpyDeviceToHost));
    double difference = 0, norm = 0;
    *lse_error = 0;
    std::minstd_rand random(1);
    for (int sample = 0; sample < 200; ++sample) {
      const size_t s = random() % c.lengths.size();
      int64_t begin = 0;
      for (size_t i = 0; i < s; ++i) begin += c.lengths[i];
      const int64_t n = c.lengths[s], head = random() % c.heads_q;
      if (n == 0) continue;
      const int64_t row = sample % 4 == 0 ? n - 1 : sample % 4 == 1 ? 0 : random() % n;
      std::vector<double> expected(kHeadDim);
      const double expected_lse = reference(begin, n, row, head, &expected);
      for (int64_t d = 0; d < kHeadDim; ++d) {
        const double got = __bfloat162float(o[at(begin + row, head, c.heads_q) + d]);
        difference += (got - expected[d]) * (got - expected[d]);
        norm += expected[d] * expected[d];
      }
      const double e = std::abs(l[head * c.tokens() + begin + row] - expected_lse);
      *lse_error = e <= *lse_error ? *lse_error : e;  // NaN counts
    }
    *o_error = std::sqrt(difference / norm);
  }

  double reference(int64_t begin, int64_t n, int64_t row, int64_t head,
                   std::vector<double>* o) const {
    const int64_t kv = head / (c.heads_q / c.heads_kv), keys = c.causal ? row + 1 : n;
    std::vector<double> p(keys);
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t d = 0; d < kHeadDim; ++d) {
        p[j] += static_cast<double>(__bfloat162float(q_host[at(begin + row, head, c.heads_q) + d])) *
                __bfloat162float(k_host[at(begin + j, kv, c.heads_kv) + d]);
      }
      p[j] /= std::sqrt(static_cast<double>(kHeadDim));
      most = std::max(most, p[j]);
    }
    for (double& x : p) sum += x = std::exp(x - most);
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t d = 0; d < kHeadDim; ++d) {
        (*o)[d] += p[j] / sum * __bfloat162float(v_host[at(begin + j, kv, c.heads_kv) + d]);
      }
    }
    return most + std::log(sum);
  }

  const Case& c;
  std::vector<__nv_bfloat16> q_host, k_host, v_host;
  void *q, *k, *v, *out, *lse, *cu_seqlens;
  AttentionInputs inputs;
  AttentionOptions options;
  ForwardOutputs outputs;
  Workspace workspace;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "auto";
  const Backend backend = name == "sm80"   ? Backend::kSm80
                          : name == "sm90" ? Backend::kSm90
                                           : Backend::kAuto;
  for (int i = 2; i < argc; ++i) {
    const Case c = parse(argv[i]);
    Run run(c);
    run.prepare(backend);
    const double flops = 4 * c.pairs() * c.heads_q * kHeadDim;
    const double first = run.time(0, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    const double brief = run.time(1, 1);
    const int repeats = std::clamp(static_cast<int>(600 / brief), 5, 400);
    const double steady = run.time(repeats, repeats);
    double o_error, lse_error;
    run.compare(&o_error, &lse_error);
    std::printf(
        "{\"case\": \"%s\", \"backend\": \"%s\", \"first_ms\": %.2f, \"short_ms\": %.3f, "
        "\"short_tflops\": %.1f, \"steady_ms\": %.3f, \"steady_tflops\": %.1f, \"o_error\": %.2e, "
        "\"lse_error\": %.1e}\n",
        c.text.c_str(), name.c_str(), first, brief, flops / brief / 1e9, steady,
        flops / steady / 1e9, o_error, lse_error);
    std::fflush(stdout);
  }
}
