// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ffpa/status.h"
#include "ffpa/tensor.h"

// Exact attention, O = softmax(scores) V with scores = softmax_scale Q K^T, forward and backward.
//
// Shapes. B sequences, Hq query heads, Hkv key/value heads (Hq a multiple of Hkv), D = head dim of
// Q and K, Dv = head dim of V and O. Any strides with a unit last stride run in place.
//             dense                packed (cu_seqlens given)
//   q         [B, Hq,  Nq, D]      [Tq, Hq,  D]      float32 (CPU only), float16 or bfloat16
//   k         [B, Hkv, Nk, D]      [Tk, Hkv, D]      same dtype as q
//   v         [B, Hkv, Nk, Dv]     [Tk, Hkv, Dv]     same dtype as q; may be the same memory as k
//   out       [B, Hq,  Nq, Dv]     [Tq, Hq,  Dv]     same dtype as q
//   lse       [B, Hq, Nq]          [Hq, Tq]          float32, natural logarithm
//   mask      broadcasts to [B, Hq, Nq, Nk]; packed: to [B, Hq, max_seqlen_q, max_seqlen_k]
//
// Scores of query i and key j of one sequence with nq queries and nk keys, in this order:
//   s = softmax_scale * <q_i, k_j>
//   s = softcap * tanh(s / softcap)                        if softcap > 0
//   s = s - alibi_slope * |i + nk - nq - j|                if alibi_slopes
//   s = s + mask, or -inf where a boolean mask is false    if mask
//   s = -inf unless -left <= j - (i + nk - nq) <= right    window, causal (right = 0)
// so causal is aligned bottom-right. P = exp(s - lse), lse = log(sum_j exp(s_j) + exp(sink)).
// A query without visible keys gives out = 0, lse = -inf and zero gradients, also with a sink.
// Source of the backward formulas: Dao, FlashAttention-2 (2023), section 3.1.2; sink and lse
// gradient: dS = P * (dP - delta), delta = rowsum(dout * out) - dlse, dsink = -sum exp(sink - lse)
// * delta.
namespace ffpa {

enum class Backend : uint8_t { kAuto, kCpu, kSm80, kSm90 };

// What attention reads. Undefined tensors are options not used.
struct AttentionInputs {
  Tensor q, k, v;

  // Packed input: int32 [B + 1], first 0, non-decreasing, last Tq (Tk). Values on the CPU are
  // checked; values on a GPU are never read by the host.
  Tensor cu_seqlens_q, cu_seqlens_k;
  int64_t max_seqlen_q = 0, max_seqlen_k = 0;  // packed only: at least the longest sequence

  // int32 [B]: only the first seqused rows of each sequence take part; the rows behind them give
  // out = 0, lse = -inf and zero gradients, and are not read.
  Tensor seqused_q, seqused_k;

  Tensor mask;          // bool (true = visible), float32 or q's dtype (added to the scores)
  Tensor alibi_slopes;  // float32 [Hq] or [B, Hq]
  Tensor sink;          // float32 [Hq]: logit of one more, valueless key
};

struct AttentionOptions {
  std::optional<double> softmax_scale;  // default 1 / sqrt(D); 0 and negative values are used
  bool causal = false;                  // key j visible to query i iff j <= i + nk - nq
  // Keys visible to the left and right of i + nk - nq, besides that key itself; -1 = all.
  int64_t window_left = -1, window_right = -1;
  double softcap = 0;  // 0 = off

  // Dropout of P. Element e = ((b*Hq + h)*Nq + i)*Nk + j (packed: with max_seqlen as Nq, Nk) draws
  // lane (offset + e) % 4 of philox4x32-10 block (offset + e) / 4 and is kept iff
  // (u32 + 1) / 2^32 > p; kept P is scaled by 1 / (1 - p), lse is that of the undropped P.
  double dropout_p = 0;  // in [0, 1)
  uint64_t dropout_seed = 0, dropout_offset = 0;

  Backend backend = Backend::kAuto;
  bool deterministic = true;  // every kernel of this build is deterministic
  // Bytes of workspace that a call may need; -1 = the kernel's default. A kernel gives up speed for
  // it (shared or split work); below the least that it can do with, the call is an error.
  int64_t workspace_limit = -1;
  int num_threads = 0;  // CPU backend; 0 = all. Results do not depend on it
};

struct ForwardOutputs {
  Tensor out;
  Tensor lse;  // optional
};

// What the backward reads besides the inputs: the forward's results and the incoming gradients.
struct BackwardInputs {
  Tensor out, lse;
  Tensor dout;  // out's shape and dtype; stride 0 is fine but in the last dimension
  Tensor dlse;  // optional, lse's shape, float32
};

// Gradients to compute; undefined ones are skipped. Each has its input's shape and dtype, but for
// dmask, which may be float32 for a mask of q's dtype.
struct BackwardOutputs {
  Tensor dq, dk, dv;
  Tensor dsink;
  Tensor dmask;  // of an additive mask: summed over the dimensions that it broadcasts
};

// Scratch memory on the device of the call, 256-byte aligned. Must live until the work is done.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

// Every call checks all of its arguments before it writes anything. `stream` is a CUstream /
// cudaStream_t for CUDA tensors (null: the legacy default stream) and must be null for CPU ones.
// CUDA work is enqueued, never waited for; CPU work is done when the call returns.
Status forward(const AttentionInputs& inputs, const AttentionOptions& options,
               const ForwardOutputs& outputs, Workspace workspace, void* stream = nullptr);
Status backward(const AttentionInputs& inputs, const AttentionOptions& options,
                const BackwardInputs& saved, const BackwardOutputs& gradients, Workspace workspace,
                void* stream = nullptr);

// Bytes of workspace that `forward` (`backward`) needs. A pure function of dtypes, shapes, devices
// and options: data is not read.
Status forward_workspace_bytes(const AttentionInputs& inputs, const AttentionOptions& options,
                               size_t* bytes);
Status backward_workspace_bytes(const AttentionInputs& inputs, const AttentionOptions& options,
                                const BackwardOutputs& gradients, size_t* bytes);

// Which kernels would run and why, tile sizes and workspace: a few lines of text for people.
Status explain(const AttentionInputs& inputs, const AttentionOptions& options, std::string* text);

// Every kernel of this build, one line each: name, devices, dtypes, head dims.
std::string kernel_list();

}  // namespace ffpa
