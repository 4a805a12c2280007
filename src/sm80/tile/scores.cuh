// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// From products to scores, one element at a time: scale, softcap, ALiBi, mask, window, dropout.
#pragma once

#include "plan/philox.h"
#include "sm80/params.h"
#include "sm80/ptx.cuh"
#include "sm80/tile/sequence.cuh"

namespace ffpa::sm80 {

inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// A probability this close to 1 leaves nothing to the other keys: dP and delta are then equal but
// for rounding.
inline constexpr float kAllWeight = 1 - 0x1p-16f;

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

// One query and one key of one sequence.
struct Pair {
  int32_t batch, head;  // query head
  int32_t i, j;
};

// A score and, under a softcap, its derivative by the scaled product.
struct Score {
  float value, derivative;
};

// The mask's value: -inf hides, NaN and others are added.
__device__ __forceinline__ float mask_value(const Extras& x, const Pair& at) {
  const int64_t offset = at.batch * x.mask_batch_stride + at.head * x.mask_head_stride +
                         at.i * x.mask_row_stride + at.j * x.mask_column_stride;
  switch (x.mask_kind) {
    case MaskKind::kBool:
      return static_cast<const uint8_t*>(x.mask)[offset] ? 0.f : minus_infinity();
    case MaskKind::kFloat32:
      return static_cast<const float*>(x.mask)[offset];
    case MaskKind::kFloat16:
      return to_float(static_cast<const __half*>(x.mask)[offset]);
    case MaskKind::kBFloat16:
      return to_float(static_cast<const __nv_bfloat16*>(x.mask)[offset]);
    case MaskKind::kNone:
      break;
  }
  return 0;
}

// `s`: the scaled product; `self`: the key on the query's diagonal. Natural units.
__device__ __forceinline__ Score extra_score(const Extras& x, float s, const Pair& at,
                                             int32_t self) {
  float derivative = 1;
  if (x.softcap != 0) {
    const float t = tanhf(s / x.softcap);
    s = x.softcap * t;
    derivative = 1 - t * t;
  }
  if (x.alibi_slopes) {
    const float slope =
        x.alibi_slopes[at.batch * x.alibi_batch_stride + at.head * x.alibi_head_stride];
    s -= slope * static_cast<float>(abs(self - at.j));
  }
  if (x.mask_kind != MaskKind::kNone) {
    const float m = mask_value(x, at);
    s = m == minus_infinity() ? m : s + m;
  }
  return {s, derivative};
}

// Is P kept by dropout? Numbers of the tensor [B, heads_q, seqlen_q, seqlen_k].
__device__ __forceinline__ uint64_t dropout_element(const Params& p, const Pair& at) {
  const uint64_t row =
      (static_cast<uint64_t>(at.batch) * p.heads_q + at.head) * p.sequences.seqlen_q + at.i;
  return p.extras.offset + row * static_cast<uint64_t>(p.sequences.seqlen_k) + at.j;
}

__device__ __forceinline__ uint32_t lane_of(const PhiloxBlock& block, uint32_t lane) {
  const uint32_t low = lane & 1 ? block.lane[1] : block.lane[0];
  const uint32_t high = lane & 1 ? block.lane[3] : block.lane[2];
  return lane & 2 ? high : low;
}

__device__ __forceinline__ bool keeps_element(const Extras& x, uint64_t element) {
  const PhiloxBlock block = philox4x32_10(element / 4, x.seed);
  return lane_of(block, element % 4) >= x.drop_below;
}

// Of two neighbouring keys (`along_keys`) or queries.
struct KeptPair {
  bool first, second;
};
__device__ __forceinline__ KeptPair kept_pair(const Params& p, const Pair& at, bool along_keys) {
  const uint64_t e = dropout_element(p, at);
  if (!along_keys) {
    return {keeps_element(p.extras, e), keeps_element(p.extras, e + p.sequences.seqlen_k)};
  }
  const PhiloxBlock block = philox4x32_10(e / 4, p.extras.seed);
  const bool first = lane_of(block, e % 4) >= p.extras.drop_below;
  if (e % 4 == 3) return {first, keeps_element(p.extras, e + 1)};
  return {first, lane_of(block, e % 4 + 1) >= p.extras.drop_below};
}

}  // namespace ffpa::sm80
