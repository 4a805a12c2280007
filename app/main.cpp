// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "arguments.h"
#include "demo.h"
#include "device.h"
#ifdef FFPA_WITH_FUZZ
#include "fuzz/fuzz.h"
#endif

namespace ffpa::app {
namespace {

constexpr const char* kUsage = R"(usage: ffpa COMMAND [OPTION]...

  demo     one training step of attention on a packed batch, timed and compared with float64
  explain  which kernels would run such a call, and why
  kernels  the kernels of this build
  fuzz     random packs against a reference; --seconds 60 --seed 1 (builds with tests)
  repro    one case, from the line that fuzz printed
  version

options of demo and explain, with the flagship as default:
  --heads 32/4         query heads / KV heads
  --head-dim 512
  --seqlens 3x2048     or 100,200,300
  --dtype bf16         or fp32 (explain: fp16 too)
  --full               not causal
)";

int explain_shape(const Shape& shape) {
  const std::vector<int32_t> cu = shape.cu_seqlens();
  AttentionInputs inputs;
  const int64_t t = shape.tokens();
  inputs.q = Tensor::contiguous(nullptr, shape.dtype, {t, shape.heads_q, shape.head_dim});
  inputs.k = Tensor::contiguous(nullptr, shape.dtype, {t, shape.heads_kv, shape.head_dim});
  inputs.v = inputs.k;
  inputs.cu_seqlens_q =
      Tensor::contiguous(nullptr, DType::kInt32, {static_cast<int64_t>(cu.size())});
  inputs.cu_seqlens_k = inputs.cu_seqlens_q;
  inputs.max_seqlen_q = inputs.max_seqlen_k = shape.max_seqlen();
  AttentionOptions options;
  options.causal = shape.causal;
  const bool gpu = gpu_device() != nullptr;
  for (DeviceType device : {DeviceType::kCuda, DeviceType::kCpu}) {
    if (device == DeviceType::kCuda && !gpu) continue;
    for (Tensor* tensor :
         {&inputs.q, &inputs.k, &inputs.v, &inputs.cu_seqlens_q, &inputs.cu_seqlens_k}) {
      tensor->device = device;
    }
    std::string text;
    const Status status = explain(inputs, options, &text);
    std::printf("%s:\n%s\n", device == DeviceType::kCuda ? "GPU" : "CPU",
                status.ok() ? text.c_str() : status.message().c_str());
    if (!status.ok()) return 1;
  }
  return 0;
}

int run(const std::string& command, const std::vector<std::string>& arguments) {
  if (command == "version") return std::puts(FFPA_VERSION), 0;
  if (command == "kernels") return std::fputs(kernel_list().c_str(), stdout), 0;
#ifdef FFPA_WITH_FUZZ
  if (command == "fuzz") return test::fuzz(arguments);
  if (command == "repro") return test::repro(arguments);
#endif
  if (command != "demo" && command != "explain") {
    if (!command.empty() && command != "help") {
      std::fprintf(stderr, "ffpa: unknown command '%s'\n", command.c_str());
    }
    std::fputs(kUsage, command.empty() || command == "help" ? stdout : stderr);
    return command.empty() || command == "help" ? 0 : 2;
  }
  Shape shape;
  std::string error = parse(arguments, &shape);
  if (error.empty() && command == "demo" && shape.dtype == DType::kFloat16) {
    error = "--dtype: expected bf16 or fp32 for demo, got 'fp16'";
  }
  if (!error.empty()) return std::fprintf(stderr, "ffpa: %s\n", error.c_str()), 2;
  if (command == "demo") return demo(shape);
  if (shape.lengths.empty()) shape.lengths = {2048, 2048, 2048};
  return explain_shape(shape);
}

}  // namespace
}  // namespace ffpa::app

int main(int argc, char** argv) {
  const std::vector<std::string> all(argv + 1, argv + argc);
  try {
    return ffpa::app::run(all.empty() ? "" : all[0],
                          {all.begin() + (all.empty() ? 0 : 1), all.end()});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ffpa: %s\n", e.what());
    return 1;
  }
}
