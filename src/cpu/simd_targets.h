// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Before any Highway header: which instruction sets the SIMD files are compiled for. Highway is
// used header-only; isa.h chooses at run time.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_IS_DEBUG_BUILD 0

// The function table `name` of the compiled target that `isa` allows. Inside the namespace that
// holds HWY_NAMESPACE.
#if defined(__x86_64__)
#define FFPA_CHOOSE_TARGET(isa, name)                \
  ((isa) >= ::ffpa::cpu::Isa::kAvx512 ? N_AVX3::name \
   : (isa) >= ::ffpa::cpu::Isa::kAvx2 ? N_AVX2::name \
   : (isa) >= ::ffpa::cpu::Isa::kSse4 ? N_SSE4::name \
                                      : HWY_STATIC_DISPATCH(name))
#else
#define FFPA_CHOOSE_TARGET(isa, name) ((void)(isa), HWY_STATIC_DISPATCH(name))
#endif
