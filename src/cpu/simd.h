// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Element-wise work, packing and the float32 matrix product, on Highway: compiled for several
// instruction sets, the best one is chosen at run time.
#pragma once

#include <cstdint>

namespace ffpa::cpu {

using Bits16 = uint16_t;  // a float16 or bfloat16 in memory

// Columns of B that lie side by side in a packed operand. A packed B of K rows and N columns is
// [N/16][K][16] floats, or [N/16][K/2][16] pairs (k, k+1) of bfloat16: dwords in both cases.
inline constexpr int kPackColumns = 16;
// The left operand of a bfloat16 product lies in panels [m/16][k/32][16][32]: elements from one
// piece of 32 columns of a row to the next.
inline constexpr int kPanelRows = 16, kPanelColumns = 32, kPanelStep = 512;

// "AVX3", "AVX2", ...: what this machine runs.
const char* simd_target();

// C [m, 16 groups] (+)= A [m, k] B, B packed. C's rows are ldc floats apart.
void matmul_f32(int m, int groups, int k, const float* a, int64_t lda, const float* b, float* c,
                int64_t ldc, bool accumulate);

// Packs the transpose of `rows` rows of `dwords` dwords: column r of B is row r of the source. Rows
// up to the next multiple of 16 become zeros, dwords from `dwords` to `padded` too.
void pack_transposed(int rows, int dwords, int padded, const uint32_t* from, int64_t stride,
                     uint32_t* to);
// Packs rows as the rows k of B. Columns are padded with zeros to a multiple of 16; rows, of the
// bfloat16 form, to `padded_rows`.
void pack_rows(int rows, int columns, const float* from, int64_t stride, float* to);
void pack_rows(int rows, int padded_rows, int columns, const Bits16* from, int64_t stride,
               Bits16* to);

void bf16_to_f32(int n, const Bits16* from, float* to);
void f16_to_f32(int n, const Bits16* from, float* to);
void f32_to_bf16(int n, const float* from, Bits16* to);  // to nearest even, NaN stays NaN
void f32_to_f16(int n, const float* from, Bits16* to);

// ---- rows of scores: n is a multiple of 32, arrays are 64-byte aligned --------------------------

// s = s * scale.
void scale_row(int n, float scale, float* s);
// s = cap * tanh(s * scale / cap).
void softcap_row(int n, float scale, float cap, float* s);
float max_row(int n, const float* s);
// P = 2^((s - shift) * scale); returns its sum. The float form may work in place; the other one
// rounds to bfloat16, ties away from zero, and puts columns [32 i, 32 i + 32) at to + i *
// kPanelStep.
float exp2_row(int n, float scale, float shift, const float* s, float* p);
float exp2_row(int n, float scale, float shift, const float* s, Bits16* p);
// The plain backward of a row: P = 2^(s * scale2 - lse2), dS = P * (dp - delta) * scale, and 0
// where P is 0, whatever dp is. `ds_panel`, where not null, gets dS in the layout of exp2_row.
void gradient_row(int n, float scale2, float lse2, float delta, float scale, const float* s,
                  const float* dp, float* p, float* ds);
void gradient_row(int n, float scale2, float lse2, float delta, float scale, const float* s,
                  const float* dp, Bits16* p, Bits16* ds, Bits16* ds_panel);

// x = x * factor, any n.
void multiply_row(int n, float factor, float* x);
// sum_i a[i] * b[i], any n.
float dot_row(int n, const float* a, const float* b);

// to[c][r] = from[r][c] for a matrix of `rows` x `columns`, multiples of 16.
void transpose(int rows, int columns, const float* from, int64_t from_stride, float* to,
               int64_t to_stride);
// The same, `to` in panels [columns/16][rows/32][16][32].
void transpose_to_panels(int rows, int columns, const Bits16* from, int64_t from_stride,
                         Bits16* to);

// True iff a value is NaN or infinite.
bool has_non_finite(int n, const float* x);
bool has_non_finite_bf16(int n, const Bits16* x);

}  // namespace ffpa::cpu
