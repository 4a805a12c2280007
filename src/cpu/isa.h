// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cstdint>

namespace ffpa::cpu {

// Instruction sets that the backend has code for, weakest first. kPortable runs anywhere.
enum class Isa : uint8_t { kPortable, kSse4, kAvx2, kAvx512, kAmx };

// The best one of this machine, found once. The environment variable FFPA_CPU_ISA (portable, sse4,
// avx2, avx512, amx) lowers it, for tests.
Isa isa();
const char* isa_name(Isa isa);

}  // namespace ffpa::cpu
