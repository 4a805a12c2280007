// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/isa.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace ffpa::cpu {
namespace {

constexpr const char* kNames[] = {"portable", "sse4", "avx2", "avx512", "amx"};

#if defined(__x86_64__)
// Linux hands out the 8 KiB of tile registers per process, on request.
bool tiles_usable() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAvx512Bf16 = 1u << 5;
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  if (!(d & kAmxBf16) || !(d & kAmxTile)) return false;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & kAvx512Bf16)) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

Isa detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("aes") ||
      !__builtin_cpu_supports("pclmul")) {
    return Isa::kPortable;
  }
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c") || !__builtin_cpu_supports("bmi2")) {
    return Isa::kSse4;
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512cd")) {
    return Isa::kAvx2;
  }
  return tiles_usable() ? Isa::kAmx : Isa::kAvx512;
}
#else
Isa detect() { return Isa::kPortable; }
#endif

Isa choose() {
  const char* wanted = std::getenv("FFPA_CPU_ISA");
  Isa limit = Isa::kAmx;
  for (size_t i = 0; wanted && i < std::size(kNames); ++i) {
    if (std::string_view(wanted) == kNames[i]) limit = static_cast<Isa>(i);
  }
  return std::min(limit, detect());
}

}  // namespace

Isa isa() {
  static const Isa chosen = choose();
  return chosen;
}

const char* isa_name(Isa isa) { return kNames[static_cast<int>(isa)]; }

}  // namespace ffpa::cpu
