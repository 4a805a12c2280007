// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/backward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/launch.h"
#include "cpu/threads.h"

namespace ffpa::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

size_t bytes_of(const Problem& p, int workers) {
  Arena arena;
  Deltas::take(arena, p);
  // The two passes use the same memory.
  return arena.used() + std::max(qkv_gradient_bytes(p, workers), mask_gradient_bytes(p, workers));
}

// As many as are useful and fit under the limit.
int backward_workers(const Problem& p) {
  const double flops = 4.0 * static_cast<double>(p.total_q) * static_cast<double>(p.heads_q) *
                       static_cast<double>(p.seqlen_k) *
                       static_cast<double>(p.head_dim_qk + p.head_dim_v);
  int workers = worker_count(p, flops);
  if (p.workspace_limit < 0) return workers;
  while (workers > 1 && bytes_of(p, workers) > static_cast<size_t>(p.workspace_limit)) --workers;
  return workers;
}

uint8_t loose_flags(const Problem& p, int64_t batch, int64_t head, int64_t row) {
  const auto loose = [&](const Rows& rows, int64_t columns) {
    return !row_kernels().all_finite(element_row(rows, p.dtype, batch, head, row), p.dtype,
                                     static_cast<int>(columns));
  };
  return (loose(p.q, p.head_dim_qk) ? Deltas::kLooseQ : 0) |
         (loose(p.dout, p.head_dim_v) ? Deltas::kLooseDout : 0);
}

void prepare_head(const Problem& p, const Deltas& deltas, int64_t batch, int64_t head) {
  const Sequence s = p.sequence(batch);
  const Visibility visible = p.visibility(s);
  const RowKernels& rows = row_kernels();
  const int dv = static_cast<int>(p.head_dim_v);
  for (int32_t i = 0; i < s.rows_q; ++i) {
    const int64_t row = s.q_begin + i;
    deltas.loose(batch, head, row) = i < s.len_q ? loose_flags(p, batch, head, row) : 0;
    const bool sees = i < s.len_q && !visible_keys(visible, i).empty();
    if (sees && p.lse.at(batch, head, row) != -kInfinity) {
      const float dlse = p.dlse.defined() ? p.dlse.at(batch, head, row) : 0.f;
      deltas.at(batch, head, row) =
          rows.dot(element_row(p.dout, p.dtype, batch, head, row),
                   element_row(p.out, p.dtype, batch, head, row), p.dtype, dv) -
          dlse;
    } else {
      deltas.at(batch, head, row) = 0;
    }
    if (!sees && p.dq.defined()) {
      std::memset(element_row(p.dq, p.dtype, batch, head, row), 0,
                  p.head_dim_qk * dtype_bytes(p.dtype));
    }
  }
}

void sink_gradient(const Problem& p, const Deltas& deltas, int64_t head) {
  const double sink = p.sink[head * p.sink_stride];
  double sum = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence s = p.sequence(b);
    for (int32_t i = 0; i < s.len_q; ++i) {
      const float lse = p.lse.at(b, head, s.q_begin + i);
      if (lse == -kInfinity) continue;
      sum -= std::exp(sink - lse) * deltas.at(b, head, s.q_begin + i);
    }
  }
  p.dsink[head * p.dsink_stride] = static_cast<float>(sum);
}

}  // namespace

void prepare_backward(const Problem& p, const Deltas& deltas, int workers) {
  run_tasks(workers, p.batch * p.heads_q,
            [&](int, int64_t t) { prepare_head(p, deltas, t / p.heads_q, t % p.heads_q); });
  if (!p.dsink) return;
  run_tasks(workers, p.heads_q, [&](int, int64_t head) { sink_gradient(p, deltas, head); });
}

size_t backward_workspace_bytes(const Problem& p) { return bytes_of(p, backward_workers(p)); }

Status backward(const Problem& p, Workspace workspace, void*) {
  const int workers = backward_workers(p);
  Arena arena(workspace.data);
  const Deltas deltas = Deltas::take(arena, p);
  void* scratch = static_cast<char*>(workspace.data) + arena.used();
  prepare_backward(p, deltas, workers);
  if (p.dq.defined() || p.dk.defined() || p.dv.defined()) {
    compute_qkv_gradients(p, deltas, workers, scratch);
  }
  if (p.dmask.defined()) compute_mask_gradient(p, deltas, workers, scratch);
  return {};
}

std::string describe_backward(const Problem& p) {
  return describe_qkv_gradients(p, backward_workers(p));
}

}  // namespace ffpa::cpu
