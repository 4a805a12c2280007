// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "sm80/launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <utility>

#include "gpu/carver.h"
#include "gpu/runtime.h"
#include "sm80/attention/launch.h"
#include "sm80/combine/combine.h"
#include "sm80/make_params.h"
#include "sm80/mask_gradient/mask_gradient.h"
#include "sm80/prepare/prepare.h"

namespace ffpa::sm80 {
namespace {

// Tile prefixes of packed sequences. One array serves all operations of a call in turn.
int32_t* take_prefix(const Problem& p, Carver* carver) {
  return p.packed ? carver->take<int32_t>(p.batch + 1) : nullptr;
}
float* take_delta(const Problem& p, Carver* carver) {
  return carver->take<float>(p.heads_q * p.total_q);
}

using Launch = cudaError_t (*)(const Params&, bool, int64_t, cudaStream_t);

template <class T, Op kOp, int... kShapes>
Launch launch_of_shape(int shape, std::integer_sequence<int, kShapes...>) {
  constexpr Launch kLaunches[] = {launch_attention<T, kShapes, kOp>...};
  return kLaunches[shape];
}

template <class T>
Launch launch_of(Op op, int shape) {
  constexpr auto kShapes = std::make_integer_sequence<int, kTileShapeCount>{};
  switch (op) {
    case Op::kForward:
      return launch_of_shape<T, Op::kForward>(shape, kShapes);
    case Op::kQueryGradient:
      return launch_of_shape<T, Op::kQueryGradient>(shape, kShapes);
    case Op::kKeyGradient:
      return launch_of_shape<T, Op::kKeyGradient>(shape, kShapes);
    case Op::kValueGradient:
      break;
  }
  return launch_of_shape<T, Op::kValueGradient>(shape, kShapes);
}

Partials take_partials(const Problem& p, int splits, Carver* carver) {
  const int64_t rows = splits > 1 ? splits * p.heads_q * p.total_q : 0;
  Partials partials{splits, nullptr, nullptr};
  partials.out = carver->take<float>(rows * p.head_dim_v);
  partials.lse = carver->take<float>(rows);
  return partials;
}

Status run(const Problem& p, Operation o, int32_t* prefix, const float* delta,
           cudaStream_t stream) {
  const Op op = o.op;
  if (o.blocks == 0) return {};
  int block_limit = 0, sm_limit = 0;
  FFPA_RETURN_IF_ERROR(to_status(cudaDeviceGetAttribute(
      &block_limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, p.device_index)));
  FFPA_RETURN_IF_ERROR(to_status(cudaDeviceGetAttribute(
      &sm_limit, cudaDevAttrMaxSharedMemoryPerMultiprocessor, p.device_index)));
  FFPA_RETURN_IF_ERROR(plan_operation(block_limit, sm_limit, &o));
  Params& x = o.params;
  if (p.packed) {
    FFPA_RETURN_IF_ERROR(
        to_status(launch_prefix(x.sequences, owns_queries(op), kTileShapes[o.shape].rows,
                                x.heads_per_tile, prefix, stream)));
  }
  x.sequences.prefix = prefix;
  x.delta = delta;
  const Launch launch = p.dtype == DType::kFloat16 ? launch_of<__half>(op, o.shape)
                                                   : launch_of<__nv_bfloat16>(op, o.shape);
  return to_status(launch(x, is_general(x), o.blocks, stream));
}

std::string describe(const char* what, const Problem& p, Op op) {
  const Operation o = make_operation(p, op);
  const TileShape& t = kTileShapes[o.shape];
  std::string text = std::string(what) + std::to_string(t.rows) +
                     (owns_queries(op) ? " queries x " : " keys x ") + std::to_string(t.block);
  if (o.params.heads_per_tile > 1) {
    text += " (rows of " + std::to_string(o.params.heads_per_tile) + " heads)";
  }
  if (o.params.partials.splits > 1) {
    text += ", keys in " + std::to_string(o.params.partials.splits) + " parts";
  }
  return text;
}

}  // namespace

size_t forward_workspace_bytes(const Problem& p) {
  Carver carver(nullptr);
  take_prefix(p, &carver);
  take_partials(p, make_operation(p, Op::kForward).params.partials.splits, &carver);
  return static_cast<size_t>(carver.used());
}

size_t backward_workspace_bytes(const Problem& p) {
  Carver carver(nullptr);
  take_prefix(p, &carver);
  take_delta(p, &carver);
  return static_cast<size_t>(carver.used());
}

Status forward(const Problem& p, Workspace workspace, void* stream) {
  const DeviceGuard guard(p.device_index);
  FFPA_RETURN_IF_ERROR(guard.status());
  Carver carver(workspace.data);
  int32_t* prefix = take_prefix(p, &carver);
  Operation o = make_operation(p, Op::kForward);
  Partials& partials = o.params.partials;
  partials = take_partials(p, partials.splits, &carver);
  FFPA_RETURN_IF_ERROR(run(p, o, prefix, nullptr, static_cast<cudaStream_t>(stream)));
  if (partials.splits == 1) return {};
  return to_status(launch_combine(p, partials, static_cast<cudaStream_t>(stream)));
}

Status backward(const Problem& p, Workspace workspace, void* to) {
  const DeviceGuard guard(p.device_index);
  FFPA_RETURN_IF_ERROR(guard.status());
  const auto stream = static_cast<cudaStream_t>(to);
  Carver carver(workspace.data);
  int32_t* prefix = take_prefix(p, &carver);
  float* delta = take_delta(p, &carver);
  FFPA_RETURN_IF_ERROR(to_status(launch_delta(p, delta, stream)));
  if (p.dsink) FFPA_RETURN_IF_ERROR(to_status(launch_sink_gradient(p, delta, stream)));
  const auto gradient = [&](const Rows& wanted, Op op) -> Status {
    if (!wanted.defined()) return {};
    return run(p, make_operation(p, op), prefix, delta, stream);
  };
  FFPA_RETURN_IF_ERROR(gradient(p.dq, Op::kQueryGradient));
  FFPA_RETURN_IF_ERROR(gradient(p.dk, Op::kKeyGradient));
  FFPA_RETURN_IF_ERROR(gradient(p.dv, Op::kValueGradient));
  if (p.dmask.defined()) FFPA_RETURN_IF_ERROR(launch_mask_gradient(p, delta, stream));
  return {};
}

std::string describe_forward(const Problem& p) {
  return describe("mma.sync, tiles of ", p, Op::kForward);
}

std::string describe_backward(const Problem& p) {
  return describe("mma.sync, tiles for dq of ", p, Op::kQueryGradient) +
         describe(", for dk of ", p, Op::kKeyGradient) +
         describe(", for dv of ", p, Op::kValueGradient);
}

}  // namespace ffpa::sm80
