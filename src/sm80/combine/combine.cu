// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "sm80/combine/combine.h"
#include "sm80/make_params.h"
#include "sm80/tile/scores.cuh"

namespace ffpa::sm80 {
namespace {

constexpr int kThreads = 128;

struct CombineParams {
  Partials partials;
  Operand out;
  Statistics lse;
  const float* sink;
  int64_t sink_stride;
  bool packed;
  int64_t seqlen_q, total_q, heads_q;
};

// A block per query and head.
template <class T>
__global__ void __launch_bounds__(kThreads) combine_kernel(const CombineParams p) {
  __shared__ float weights[kMaxSplits];
  const Partials& x = p.partials;
  const int64_t index = blockIdx.x, rows = p.heads_q * p.total_q;
  const int64_t head = index / p.total_q, token = index % p.total_q;
  const int64_t batch = p.packed ? 0 : token / p.seqlen_q;
  const int64_t row = p.packed ? token : token % p.seqlen_q;

  float most = minus_infinity();
  for (int s = 0; s < x.splits; ++s) most = fmaxf(most, x.lse[s * rows + index]);
  if (most == minus_infinity()) most = 0;
  for (int s = static_cast<int>(threadIdx.x); s < x.splits; s += kThreads) {
    weights[s] = expf(x.lse[s * rows + index] - most);
  }
  __syncthreads();
  float sum = 0;
  for (int s = 0; s < x.splits; ++s) sum += weights[s];
  float scale = 0, lse = minus_infinity();
  if (sum != 0) {
    const float sink = p.sink ? p.sink[head * p.sink_stride] : minus_infinity();
    const float now = fmaxf(most, sink), keys = expf(most - now);
    const float total = sum * keys + expf(sink - now);
    scale = keys / total;
    lse = now + logf(total);
  }
  auto* out = static_cast<uint16_t*>(const_cast<void*>(p.out.data)) + batch * p.out.batch_stride +
              head * p.out.head_stride + row * p.out.row_stride;
  for (int c = static_cast<int>(threadIdx.x); c < p.out.width; c += kThreads) {
    float value = 0;
    for (int s = 0; s < x.splits; ++s) {
      if (weights[s] != 0) value += weights[s] * x.out[(s * rows + index) * p.out.width + c];
    }
    out[c] = static_cast<uint16_t>(pack<T>(value * scale, 0));
  }
  if (threadIdx.x == 0 && p.lse.data) {
    p.lse.data[batch * p.lse.batch_stride + head * p.lse.head_stride + row * p.lse.row_stride] =
        lse;
  }
}

}  // namespace

cudaError_t launch_combine(const Problem& p, const Partials& partials, cudaStream_t stream) {
  const int64_t rows = p.heads_q * p.total_q;
  if (rows == 0) return cudaSuccess;
  const CombineParams x{partials,
                        make_operand(p.out, p.head_dim_v),
                        make_statistics(p.lse),
                        p.sink,
                        p.sink_stride,
                        p.packed,
                        p.seqlen_q,
                        p.total_q,
                        p.heads_q};
  const auto kernel =
      p.dtype == DType::kFloat16 ? combine_kernel<__half> : combine_kernel<__nv_bfloat16>;
  kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(x);
  return cudaGetLastError();
}

}  // namespace ffpa::sm80
