// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/simd.h"
#include "plan/philox.h"

namespace ffpa::cpu {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504088896341f;

template <class T, class Value>
void add_mask_values(const T* mask, int64_t stride, int n, Value value, float* s) {
  for (int c = 0; c < n; ++c) {
    const float x = value(mask[c * stride]);
    s[c] = x == kHidden ? kHidden : s[c] + x;  // selects, whatever s holds
  }
}

float bf16_value(Bits16 x) {
  float y;
  bf16_to_f32(1, &x, &y);
  return y;
}

float f16_value(Bits16 x) {
  float y;
  f16_to_f32(1, &x, &y);
  return y;
}

}  // namespace

Scores::Scores(const Problem& p, const Sequence& s, int64_t batch, int64_t head)
    : p_(p),
      visibility_(p.visibility(s)),
      batch_(batch),
      head_(head),
      // A positive scale, so that the largest product belongs to the largest score.
      plain_(p.softcap == 0 && !p.alibi_slopes && !p.mask.defined() && p.softmax_scale > 0) {
  if (p.alibi_slopes) {
    slope_ = p.alibi_slopes[batch * p.alibi_batch_stride + head * p.alibi_head_stride];
  }
}

float Scores::exponent_scale() const { return plain_ ? p_.softmax_scale * kLog2E : kLog2E; }

float Scores::finish_row(int32_t i, int32_t j0, int n, int padded, bool full, float* s,
                         float* capped) const {
  if (!plain_) {
    if (has_softcap()) {
      softcap_row(padded, p_.softmax_scale, p_.softcap, s);
      if (capped) std::copy(s, s + padded, capped);
    } else {
      scale_row(padded, p_.softmax_scale, s);
    }
    if (p_.alibi_slopes) add_alibi(i, j0, n, s);
    if (p_.mask.defined()) add_mask(i, j0, n, s);
  }
  if (!full || n != padded) {
    const Range visible = visible_keys(visibility_, i);
    const int begin = std::clamp(visible.begin - j0, 0, n);
    const int end = std::clamp(visible.end - j0, begin, n);
    std::fill(s, s + begin, kHidden);
    std::fill(s + end, s + padded, kHidden);
  }
  return max_row(padded, s);
}

void Scores::add_alibi(int32_t i, int32_t j0, int n, float* s) const {
  const int32_t self = i + visibility_.diagonal();
  for (int c = 0; c < n; ++c) s[c] -= slope_ * static_cast<float>(std::abs(self - (j0 + c)));
}

void Scores::add_mask(int32_t i, int32_t j0, int n, float* s) const {
  const MaskView& m = p_.mask;
  const int64_t at = m.offset(batch_, head_, i, j0), stride = m.column_stride;
  switch (m.dtype) {
    case DType::kBool: {
      const auto* visible = static_cast<const uint8_t*>(m.data) + at;
      for (int c = 0; c < n; ++c) s[c] = visible[c * stride] ? s[c] : kHidden;
      return;
    }
    case DType::kFloat32:
      return add_mask_values(
          static_cast<const float*>(m.data) + at, stride, n, [](float x) { return x; }, s);
    case DType::kBFloat16:
      return add_mask_values(static_cast<const Bits16*>(m.data) + at, stride, n, bf16_value, s);
    default:
      return add_mask_values(static_cast<const Bits16*>(m.data) + at, stride, n, f16_value, s);
  }
}

void Scores::through_softcap(int padded, const float* capped, float* ds) const {
  for (int c = 0; c < padded; ++c) {
    const float t = capped[c] / p_.softcap;
    ds[c] = ds[c] == 0 ? 0 : ds[c] * (1 - t * t);  // hidden keys: capped may be NaN
  }
}

void Scores::dropout_row(int32_t i, int32_t j0, int padded, float* factor) const {
  const uint64_t row = static_cast<uint64_t>((batch_ * p_.heads_q + head_) * p_.seqlen_q + i) *
                       static_cast<uint64_t>(p_.seqlen_k);
  const uint64_t first = p_.dropout.offset + row + static_cast<uint64_t>(j0);
  const float kept = static_cast<float>(1.0 / (1.0 - p_.dropout.p));
  PhiloxBlock block{};
  for (int c = 0; c < padded; ++c) {
    const uint64_t e = first + static_cast<uint64_t>(c);
    if (c == 0 || e % 4 == 0) block = philox4x32_10(e / 4, p_.dropout.seed);
    factor[c] = keeps(block.lane[e % 4], p_.dropout.p) ? kept : 0;
  }
}

}  // namespace ffpa::cpu
