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
    {.name = "sm80_forward",
     .backend = Backend::kSm80,
     .device = DeviceType::kCuda,
     .pass = Pass::kForward,
     .min_sm = 80,
     .max_sm = kAnySm,
     .dtypes = kHalfDtypes,
     .min_head_dim = 8,
     .max_head_dim = 1024,
     .head_dim_step = 8,
     .features = kAllFeatures,
     .workspace_bytes = sm80::forward_workspace_bytes,
     .launch = sm80::forward,
     .describe = sm80::describe_forward},
    {.name = "sm80_backward",
     .backend = Backend::kSm80,
     .device = DeviceType::kCuda,
     .pass = Pass::kBackward,
     .min_sm = 80,
     .max_sm = kAnySm,
     .dtypes = kHalfDtypes,
     .min_head_dim = 8,
     .max_head_dim = 1024,
     .head_dim_step = 8,
     .features = kAllFeatures,
     .workspace_bytes = sm80::backward_workspace_bytes,
     .launch = sm80::backward,
     .describe = sm80::describe_backward},
#endif
    {.name = "cpu_forward",
     .backend = Backend::kCpu,
     .device = DeviceType::kCpu,
     .pass = Pass::kForward,
     .min_sm = 0,
     .max_sm = 0,
     .dtypes = kAllDtypes,
     .min_head_dim = 8,
     .max_head_dim = 1024,
     .head_dim_step = 8,
     .features = kAllFeatures,
     .workspace_bytes = cpu::forward_workspace_bytes,
     .launch = cpu::forward,
     .describe = cpu::describe_forward},
    {.name = "cpu_backward",
     .backend = Backend::kCpu,
     .device = DeviceType::kCpu,
     .pass = Pass::kBackward,
     .min_sm = 0,
     .max_sm = 0,
     .dtypes = kAllDtypes,
     .min_head_dim = 8,
     .max_head_dim = 1024,
     .head_dim_step = 8,
     .features = kAllFeatures,
     .workspace_bytes = cpu::backward_workspace_bytes,
     .launch = cpu::backward,
     .describe = cpu::describe_backward},
};

}  // namespace

std::span<const KernelRow> kernel_table() { return kRows; }

}  // namespace ffpa
