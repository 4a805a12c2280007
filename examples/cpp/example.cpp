// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Dense causal attention on the CPU through an installed ffpa.
#include <ffpa/ffpa.h>

#include <cstdio>
#include <vector>

int main() {
  using ffpa::DType, ffpa::Tensor;
  constexpr int kHeads = 2, kTokens = 100, kHeadDim = 512;
  std::vector<float> data(4 * kHeads * kTokens * kHeadDim, 0.5f), lse(kHeads * kTokens);
  const auto tensor = [&](int i) {
    return Tensor::contiguous(data.data() + i * kHeads * kTokens * kHeadDim, DType::kFloat32,
                              {1, kHeads, kTokens, kHeadDim});
  };
  ffpa::AttentionInputs inputs{.q = tensor(0), .k = tensor(1), .v = tensor(2)};
  ffpa::AttentionOptions options{.causal = true};
  ffpa::ForwardOutputs outputs{
      tensor(3), Tensor::contiguous(lse.data(), DType::kFloat32, {1, kHeads, kTokens})};

  size_t bytes = 0;
  ffpa::Status status = ffpa::forward_workspace_bytes(inputs, options, &bytes);
  std::vector<char> workspace(bytes + 256);
  void* start = workspace.data() + 256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256;
  if (status.ok()) status = ffpa::forward(inputs, options, outputs, {start, bytes});
  if (!status.ok()) return std::fprintf(stderr, "%s\n", status.message().c_str()), 1;
  std::printf("out[0] = %.3f, lse of the last query = %.3f\n", data[3 * data.size() / 4],
              lse.back());
}
