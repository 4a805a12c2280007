// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "sm80/make_params.h"
#include "sm80/prepare/prepare.h"
#include "sm80/tile/scores.cuh"
#include "sm80/tile/sequence.cuh"

namespace ffpa::sm80 {
namespace {

constexpr int kScanThreads = 1024;

__device__ __forceinline__ int32_t warp_scan(int32_t x) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int32_t other = __shfl_up_sync(~0u, x, distance);
    if (lane >= distance) x += other;
  }
  return x;
}

// One block: 1024 sequences at a time.
__global__ void __launch_bounds__(kScanThreads)
    prefix_kernel(const Sequences s, bool by_query, int tile_rows, int heads, int32_t* prefix) {
  __shared__ int32_t warp_sums[kScanThreads / 32];
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t* cu = by_query ? s.cu_q : s.cu_k;
  int32_t before = 0;
  for (int32_t first = 0; first < s.batch; first += kScanThreads) {
    const int32_t b = first + thread;
    const int64_t rows = b < s.batch ? int64_t{cu[b + 1] - cu[b]} * heads : 0;
    const int32_t scanned = warp_scan(static_cast<int32_t>((rows + tile_rows - 1) / tile_rows));
    if (thread % 32 == 31) warp_sums[thread / 32] = scanned;
    __syncthreads();
    if (thread < 32) warp_sums[thread] = warp_scan(warp_sums[thread]);
    __syncthreads();
    const int32_t in_block = scanned + (thread >= 32 ? warp_sums[thread / 32 - 1] : 0);
    if (b < s.batch) prefix[b + 1] = before + in_block;
    before += warp_sums[kScanThreads / 32 - 1];
    __syncthreads();
  }
  if (thread == 0) prefix[0] = 0;
}

struct RowProduct {
  Operand out, dout;
  Statistics lse, dlse;
  bool packed;
  int64_t seqlen_q, total_q, heads_q;
};

template <class T>
__device__ __forceinline__ float dot_unit(const T* a, const T* b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += to_float(a[i]) * to_float(b[i]);
  return sum;
}

template <class T>
__device__ __forceinline__ float dot_unit(const T* a, const T* b, bool aligned) {
  if (!aligned) return dot_unit(a, b);
  alignas(16) T x[8], y[8];
  *reinterpret_cast<uint4*>(x) = *reinterpret_cast<const uint4*>(a);
  *reinterpret_cast<uint4*>(y) = *reinterpret_cast<const uint4*>(b);
  return dot_unit(x, y);
}

// A warp per query.
template <class T>
__global__ void __launch_bounds__(256) delta_kernel(const RowProduct p, float* delta) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t index = int64_t{blockIdx.x} * 8 + threadIdx.x / 32;
  if (index >= p.heads_q * p.total_q) return;
  const int64_t head = index / p.total_q, token = index % p.total_q;
  const int64_t batch = p.packed ? 0 : token / p.seqlen_q;
  const int64_t row = p.packed ? token : token % p.seqlen_q;
  const auto* out = static_cast<const T*>(p.out.data) + batch * p.out.batch_stride +
                    head * p.out.head_stride + row * p.out.row_stride;
  const auto* dout = static_cast<const T*>(p.dout.data) + batch * p.dout.batch_stride +
                     head * p.dout.head_stride + row * p.dout.row_stride;
  float sum = 0;
  for (int i = lane * 8; i < p.out.width; i += 256) {
    sum += dot_unit(out + i, dout + i, p.out.aligned && p.dout.aligned);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(~0u, sum, distance);
  }
  if (lane > 0) return;
  const auto at = [&](const Statistics& s) {
    return s.data[batch * s.batch_stride + head * s.head_stride + row * s.row_stride];
  };
  if (p.dlse.data) sum -= at(p.dlse);
  delta[index] = at(p.lse) == minus_infinity() ? 0 : sum;
}

// A block per head; every thread and then the tree add in a fixed order.
__global__ void __launch_bounds__(1024)
    sink_gradient_kernel(const float* sink, int64_t sink_stride, const float* delta,
                         const Statistics lse, bool packed, int64_t seqlen_q, int64_t total_q,
                         float* dsink, int64_t dsink_stride) {
  __shared__ double sums[1024];
  const int64_t head = blockIdx.x;
  const float logit = sink[head * sink_stride];
  double sum = 0;
  for (int64_t token = threadIdx.x; token < total_q; token += 1024) {
    const int64_t batch = packed ? 0 : token / seqlen_q;
    const int64_t row = packed ? token : token % seqlen_q;
    const float l =
        lse.data[batch * lse.batch_stride + head * lse.head_stride + row * lse.row_stride];
    if (l != minus_infinity()) sum -= double{expf(logit - l)} * delta[head * total_q + token];
  }
  sums[threadIdx.x] = sum;
  for (int half = 512; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) dsink[head * dsink_stride] = static_cast<float>(sums[0]);
}

template <class T>
cudaError_t launch_delta_of(const RowProduct& x, float* delta, cudaStream_t stream) {
  const int64_t warps = x.heads_q * x.total_q;
  delta_kernel<T><<<static_cast<unsigned>((warps + 7) / 8), 256, 0, stream>>>(x, delta);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_prefix(const Sequences& s, bool by_query, int tile_rows, int heads_per_tile,
                          int32_t* prefix, cudaStream_t stream) {
  prefix_kernel<<<1, kScanThreads, 0, stream>>>(s, by_query, tile_rows, heads_per_tile, prefix);
  return cudaGetLastError();
}

cudaError_t launch_delta(const Problem& p, float* delta, cudaStream_t stream) {
  if (p.heads_q * p.total_q == 0) return cudaSuccess;
  const RowProduct x{make_operand(p.out, p.head_dim_v),
                     make_operand(p.dout, p.head_dim_v),
                     make_statistics(p.lse),
                     make_statistics(p.dlse),
                     p.packed,
                     p.seqlen_q,
                     p.total_q,
                     p.heads_q};
  return p.dtype == DType::kFloat16 ? launch_delta_of<__half>(x, delta, stream)
                                    : launch_delta_of<__nv_bfloat16>(x, delta, stream);
}

cudaError_t launch_sink_gradient(const Problem& p, const float* delta, cudaStream_t stream) {
  sink_gradient_kernel<<<static_cast<unsigned>(p.heads_q), 1024, 0, stream>>>(
      p.sink, p.sink_stride, delta, make_statistics(p.lse), p.packed, p.seqlen_q, p.total_q,
      p.dsink, p.dsink_stride);
  return cudaGetLastError();
}

}  // namespace ffpa::sm80
