// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The capability table: every kernel of this build, best first.
#include "cpu/launch.h"
#include "plan/plan.h"
#ifdef FFPA_WITH_CUDA
#include "sm80/launch.h"
#include "sm90/launch.h"
#endif

namespace ffpa {
namespace {

constexpr uint32_t bit(DType dtype) { return 1u << static_cast<int>(dtype); }
constexpr uint32_t kAllDtypes = bit(DType::kFloat32) | bit(DType::kFloat16) | bit(DType::kBFloat16);

#ifdef FFPA_WITH_CUDA
constexpr uint32_t kHalfDtypes = bit(DType::kFloat16) | bit(DType::kBFloat16);
constexpr int kAnySm = 999;
#endif

// Backends that serve everything, both passes alike.
constexpr KernelRow of_pass(KernelRow backend, const char* name, Pass pass,
                            size_t (*workspace_bytes)(const Problem&),
                            Status (*launch)(const Problem&, Workspace, void*),
                            std::string (*describe)(const Problem&)) {
  backend.name = name;
  backend.pass = pass;
  backend.min_head_dim = 8;
  backend.max_head_dim = 1024;
  backend.head_dim_step = 8;
  backend.features = kAllFeatures;
  backend.workspace_bytes = workspace_bytes;
  backend.launch = launch;
  backend.describe = describe;
  return backend;
}

#ifdef FFPA_WITH_CUDA
constexpr KernelRow kSm80 = {.backend = Backend::kSm80,
                             .device = DeviceType::kCuda,
                             .min_sm = 80,
                             .max_sm = kAnySm,
                             .dtypes = kHalfDtypes};
#endif
constexpr KernelRow kCpu = {
    .backend = Backend::kCpu, .device = DeviceType::kCpu, .dtypes = kAllDtypes};

constexpr KernelRow kRows[] = {
#ifdef FFPA_WITH_CUDA
    {.name = "sm90_forward_rows",
     .backend = Backend::kSm90,
     .device = DeviceType::kCuda,
     .pass = Pass::kForward,
     .min_sm = 90,
     .max_sm = 90,
     .dtypes = kHalfDtypes,
     .min_head_dim = 8,
     .max_head_dim = 256,
     .head_dim_step = 8,
     .features = kWindow | kCausal | kSoftcap | kSink | kSeqused | kPacked | kDvSmaller,
     .workspace_bytes = sm90::forward_workspace_bytes,
     .launch = sm90::forward,
     .describe = sm90::describe_forward,
     .refuse = sm90::refuse_forward},
    {.name = "sm90_forward",
     .backend = Backend::kSm90,
     .device = DeviceType::kCuda,
     .pass = Pass::kForward,
     .min_sm = 90,
     .max_sm = 90,
     .dtypes = kHalfDtypes,
     .min_head_dim = 264,
     .max_head_dim = 512,
     .head_dim_step = 8,
     .features = kWindow | kCausal | kSoftcap | kSink | kSeqused | kPacked,
     .workspace_bytes = sm90::forward_workspace_bytes,
     .launch = sm90::forward,
     .describe = sm90::describe_forward,
     .refuse = sm90::refuse_forward},
    {.name = "sm90_backward",
     .backend = Backend::kSm90,
     .device = DeviceType::kCuda,
     .pass = Pass::kBackward,
     .min_sm = 90,
     .max_sm = 90,
     .dtypes = kHalfDtypes,
     .min_head_dim = 320,
     .max_head_dim = 512,
     .head_dim_step = 64,
     .features = kWindow | kCausal | kSoftcap | kSink | kSeqused | kPacked | kLseGradient |
                 kNonPositiveScale,
     .workspace_bytes = sm90::backward_workspace_bytes,
     .launch = sm90::backward,
     .describe = sm90::describe_backward,
     .refuse = sm90::refuse_backward},
    of_pass(kSm80, "sm80_forward", Pass::kForward, sm80::forward_workspace_bytes, sm80::forward,
            sm80::describe_forward),
    of_pass(kSm80, "sm80_backward", Pass::kBackward, sm80::backward_workspace_bytes, sm80::backward,
            sm80::describe_backward),
#endif
    of_pass(kCpu, "cpu_forward", Pass::kForward, cpu::forward_workspace_bytes, cpu::forward,
            cpu::describe_forward),
    of_pass(kCpu, "cpu_backward", Pass::kBackward, cpu::backward_workspace_bytes, cpu::backward,
            cpu::describe_backward),
};

}  // namespace

std::span<const KernelRow> kernel_table() { return kRows; }

}  // namespace ffpa
