// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Which kernel serves a call. One row per kernel says what it can do; the plan picks the first row
// that covers the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/problem.h"

namespace ffpa {

enum class Pass : uint8_t { kForward, kBackward };

// What a call asks for besides plain attention. Bits of KernelRow::features.
enum Feature : uint32_t {
  kWindow = 1 << 0,  // other than full or causal
  kCausal = 1 << 1,
  kSoftcap = 1 << 2,
  kSink = 1 << 3,
  kMask = 1 << 4,
  kMaskGradient = 1 << 5,
  kAlibi = 1 << 6,
  kDropout = 1 << 7,
  kSeqused = 1 << 8,
  kPacked = 1 << 9,
  kLseGradient = 1 << 10,
  kDvSmaller = 1 << 11,  // head_dim_v < head_dim_qk
  kNonPositiveScale = 1 << 12,
  kUnalignedRows = 1 << 13,    // q, k or v has rows that do not start at multiples of 16 bytes
  kDvLarger = 1 << 14,         // head_dim_v > head_dim_qk
  kUncountableRows = 1 << 15,  // strides that no tensor map of Hopper can count in
  kAllFeatures = (1 << 16) - 1,
};

struct KernelRow {
  const char* name = nullptr;
  Backend backend = Backend::kAuto;
  DeviceType device = DeviceType::kOther;
  Pass pass = Pass::kForward;
  int min_sm = 0, max_sm = 0;  // compute capability * 10, inclusive; CPU: 0
  uint32_t dtypes = 0;         // bit 1 << DType
  int min_head_dim = 0, max_head_dim = 0, head_dim_step = 0;
  uint32_t features = 0;

  size_t (*workspace_bytes)(const Problem&) = nullptr;
  Status (*launch)(const Problem&, Workspace, void* stream) = nullptr;
  std::string (*describe)(const Problem&) = nullptr;  // tiles, threads, workspace: one line
  // Optional. What the table cannot say: why the kernel does not serve the call, or "".
  std::string (*refuse)(const Problem&) = nullptr;
};

// All kernels of this build, best first.
std::span<const KernelRow> kernel_table();

const char* backend_name(Backend backend);

// "cpu_forward: cpu, float32 float16 bfloat16, head_dim 8..1024 in steps of 8".
std::string describe(const KernelRow& row);

uint32_t features_of(const Problem& p, Pass pass);

// The row that serves the call, or an unsupported-status that says which rows refused and why.
// `sm`: compute capability * 10 of the device of the call, 0 for the CPU.
Status select_kernel(const Problem& p, Pass pass, int sm, const KernelRow** row);

// Why `row` does not serve the call; empty if it does.
std::string refusal(const KernelRow& row, const Problem& p, Pass pass, int sm);

}  // namespace ffpa
