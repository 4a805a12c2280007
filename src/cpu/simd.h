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

// s = s * scale; returns the largest.
float scale_row(int n, float scale, float* s);
// s = cap * tanh(s * scale / cap).
void softcap_row(int n, float scale, float cap, float* s);
float max_row(int n, const float* s);
// s = exp(s - max); returns the sum.
float exp_row(int n, float max, float* s);
// x = x * factor.
void multiply_row(int n, float factor, float* x);
// sum_i a[i] * b[i]
float dot_row(int n, const float* a, const float* b);
// ds = p * (dp - delta), and 0 where p is 0, whatever dp is.
void gradient_row(int n, const float* p, const float* dp, float delta, float* ds);

// to[c][r] = from[r][c] for a matrix of `rows` x `columns`, multiples of 16.
void transpose(int rows, int columns, const float* from, int64_t from_stride, float* to,
               int64_t to_stride);
void transpose(int rows, int columns, const Bits16* from, int64_t from_stride, Bits16* to,
               int64_t to_stride);

// True iff a value is NaN or infinite.
bool has_non_finite(int n, const float* x);
bool has_non_finite_bf16(int n, const Bits16* x);

}  // namespace ffpa::cpu
