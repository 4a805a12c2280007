// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cstdint>

namespace ffpa::cpu {

// bfloat16 on AMX: this processor has it and the kernel lets this process use it.
bool amx_available();

// C [m, 16 groups] (+)= A [m, k] B, float32 accumulation. m is a multiple of 16, k of 32. A lies in
// panels [m/16][k/32][16][32], so that the inner loop reads whole tiles in a row (rows a stride
// apart halve its speed); B is packed as [groups][k/2][16] pairs (k, k+1). ldc in elements.
void matmul_bf16(int m, int groups, int k, const uint16_t* a, const uint16_t* b, float* c,
                 int64_t ldc, bool accumulate);

// Releases this thread's tile state.
void amx_release();

}  // namespace ffpa::cpu
