// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Products with float32 fused multiply-adds, for every instruction set that Highway knows.
// Panels are float32: [kept / block][summed][block], blocks of kBlockM rows of the left operand
// and of two vectors of the right one.
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/matmul_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/load-inl.h"
#include "cpu/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace ffpa::cpu {
namespace HWY_NAMESPACE {

// 8 x 2 accumulators want 32 registers.
constexpr int kBlockM = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 8 : 4;
// Steps of k whose block of the right operand stays in the first-level cache. Also the longest
// chain of roundings: with 256, sums of equal signs lose more than a float32 reference.
constexpr int kStepsPerPass = 128;

HWY_INLINE int block_n() { return 2 * lanes(); }

size_t panel_bytes(int kept, int summed) {
  const size_t rounded = (kept + kColumnRound - 1) / kColumnRound * kColumnRound;
  return rounded * summed * sizeof(float);
}

// Rows along k: each row is cut into blocks.
template <class T>
HWY_ATTR void pack_summed_rows(const RowSet& source, int block, float* panel) {
  const int k = source.count;
  for (int r = 0; r < k; ++r) {
    const T* row = static_cast<const T*>(source.rows[r]);
    for (int c = 0; c < source.columns; c += block) {
      float* to = panel + (static_cast<int64_t>(c / block) * k + r) * block;
      const int valid = HWY_MIN(block, source.columns - c);
      if (!row || valid < block) std::fill(to, to + block, 0.f);
      if (row) load_floats(row + c, valid, to);
    }
  }
}

// Rows along the kept dimension: `block` rows are interleaved.
template <class T>
HWY_ATTR void pack_kept_rows(const RowSet& source, int block, float* panel) {
  constexpr int kChunk = 64;
  float chunk[kChunk];
  const int k = source.columns;
  for (int r = 0; r < source.count; ++r) {
    const T* row = static_cast<const T*>(source.rows[r]);
    float* to = panel + static_cast<int64_t>(r / block) * k * block + r % block;
    for (int c = 0; c < k; c += kChunk) {
      const int valid = HWY_MIN(kChunk, k - c);
      if (row) {
        load_floats(row + c, valid, chunk);
      } else {
        std::fill(chunk, chunk + valid, 0.f);
      }
      for (int i = 0; i < valid; ++i) to[static_cast<int64_t>(c + i) * block] = chunk[i];
    }
  }
  for (int r = source.count; r % block != 0; ++r) {
    float* to = panel + static_cast<int64_t>(r / block) * k * block + r % block;
    for (int i = 0; i < k; ++i) to[static_cast<int64_t>(i) * block] = 0;
  }
}

HWY_ATTR void pack(Side side, RowsAlong along, const RowSet& source, void* panel) {
  const int block = side == Side::kLeft ? kBlockM : block_n();
  float* to = static_cast<float*>(panel);
  with_type(source.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    if (along == RowsAlong::kSummed) {
      pack_summed_rows<T>(source, block, to);
    } else {
      pack_kept_rows<T>(source, block, to);
    }
  });
}

// One block of C over `steps` of k.
HWY_ATTR HWY_INLINE void multiply_block(int steps, const float* HWY_RESTRICT left,
                                        const float* HWY_RESTRICT right, float* HWY_RESTRICT c,
                                        int64_t c_stride, bool accumulate) {
  const int width = lanes();
  FloatVec sum[kBlockM][2];
#pragma GCC unroll 8
  for (int r = 0; r < kBlockM; ++r) {
    sum[r][0] = sum[r][1] = hn::Zero(kFloats);
  }
  for (int k = 0; k < steps; ++k) {
    const FloatVec right0 = hn::LoadU(kFloats, right), right1 = hn::LoadU(kFloats, right + width);
#pragma GCC unroll 8
    for (int r = 0; r < kBlockM; ++r) {
      const FloatVec left_r = hn::Set(kFloats, left[r]);
      sum[r][0] = hn::MulAdd(left_r, right0, sum[r][0]);
      sum[r][1] = hn::MulAdd(left_r, right1, sum[r][1]);
    }
    left += kBlockM;
    right += 2 * width;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kBlockM; ++r) {
    float* row = c + r * c_stride;
    if (accumulate) {  // last: sums of sums keep the chains of roundings short
      sum[r][0] = hn::Add(sum[r][0], hn::LoadU(kFloats, row));
      sum[r][1] = hn::Add(sum[r][1], hn::LoadU(kFloats, row + width));
    }
    hn::StoreU(sum[r][0], kFloats, row);
    hn::StoreU(sum[r][1], kFloats, row + width);
  }
}

HWY_ATTR void multiply(int m, int n, int k, const void* left, const void* right, float* c,
                       int64_t c_stride, bool accumulate, const Band& band) {
  const int width = block_n();
  for (int k0 = 0; k0 == 0 || k0 < k; k0 += kStepsPerPass) {
    const int steps = HWY_MIN(kStepsPerPass, k - k0);
    for (int j = 0; j < n; j += width) {
      for (int i = 0; i < m; i += kBlockM) {
        const int rows = i / kBandRows;
        if (band.columns &&
            (j >= band.columns[rows].end || j + width <= band.columns[rows].begin)) {
          continue;
        }
        Range terms{k0, k0 + steps};
        if (band.terms) {
          terms.begin = max_of(terms.begin, band.terms[rows].begin);
          terms.end = max_of(min_of(terms.end, band.terms[rows].end), terms.begin);
        }
        const int64_t from = terms.begin;
        const float* b = static_cast<const float*>(right) + int64_t{j} * k + from * width;
        const float* a = static_cast<const float*>(left) + int64_t{i} * k + from * kBlockM;
        multiply_block(terms.size(), a, b, c + i * c_stride + j, c_stride, accumulate || k0 > 0);
      }
    }
  }
}

constexpr MatmulKernels kMatmul = {"float32", false, panel_bytes, pack, multiply};

}  // namespace HWY_NAMESPACE
}  // namespace ffpa::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ffpa::cpu {

const MatmulKernels& simd_matmul_kernels(Isa isa) { return FFPA_CHOOSE_TARGET(isa, kMatmul); }

}  // namespace ffpa::cpu
#endif
