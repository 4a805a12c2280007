// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The bounded wait, and the report of one that expired.
#pragma once

#include <cstdint>

#include "sm90/wait_report.h"

// A C name, for the asm of report_expired_wait.
extern "C" {
extern __shared__ __align__(1024) char ffpa_shared[];
}

namespace ffpa::sm90::ptx {

// Each try_wait sleeps for a while by itself: 40,000 tries take 0.5 s on an H200, these 10 s.
#ifndef FFPA_WAIT_TRIES
#define FFPA_WAIT_TRIES 800000
#endif
#define FFPA_STRING_(x) #x
#define FFPA_STRING(x) FFPA_STRING_(x)

// Once at the beginning of a kernel that waits.
__device__ __forceinline__ void declare_waits() {
  asm volatile(".reg .u32 ffpa_expired_barrier, ffpa_expired_parity;");
}

// Bounded wait for the completion of the phase with this parity. All of it must be ONE asm block: a
// `trap` that is a statement of its own makes ptxas give up the setmaxnreg budget (3-6x slower).
// And it must not need registers: the report is written by code that all waits of the kernel share,
// reached by a branch that only ptxas sees. Reading the clock in the loop costs 1.5 % (steady).
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done, again;\n"
      ".reg .u32 tries;\n"
      "mov.u32 tries, 0;\n"
      "RETRY:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra PASSED;\n"
      "add.u32 tries, tries, 1;\n"
      "setp.lt.u32 again, tries, " FFPA_STRING(FFPA_WAIT_TRIES) ";\n"
      "@again bra RETRY;\n"
      "mov.u32 ffpa_expired_barrier, %0;\n"
      "mov.u32 ffpa_expired_parity, %1;\n"
      "bra FFPA_WAIT_EXPIRED;\n"
      "PASSED:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// The shared cold path. Stands once, at the end of the kernel, where control never arrives by
// itself. Shared memory holds the WaitReport's address at kReport, and at kRoleTiles {n, sequence,
// head, q_row} for the roles: warpgroups 0 and 1, then one for each warp of warpgroup 2.
template <uint32_t kReport, uint32_t kRoleTiles>
__device__ __forceinline__ void report_expired_wait(uint32_t kernel) {
  asm volatile(
      "FFPA_WAIT_EXPIRED:\n"
      "{\n"
      ".reg .u32 word, shared, role;\n"
      ".reg .u64 report;\n"
      ".reg .pred lost, producer;\n"
      "mov.u32 shared, ffpa_shared;\n"
      "ld.shared.u64 report, [shared + %0];\n"
      "atom.global.exch.b32 word, [report], 1;\n"
      "setp.ne.u32 lost, word, 0;\n"
      "LOST:\n"
      "@lost bra LOST;\n"
      "st.global.u32 [report + 8], %2;\n"
      "mov.u32 word, %%ctaid.x;\n"
      "st.global.u32 [report + 12], word;\n"
      "mov.u32 word, %%tid.x;\n"
      "st.global.u32 [report + 16], word;\n"
      "setp.ge.u32 producer, word, 256;\n"
      "shr.u32 role, word, 7;\n"
      "shr.u32 word, word, 5;\n"
      "@producer sub.u32 role, word, 6;\n"
      "sub.u32 word, ffpa_expired_barrier, shared;\n"
      "st.global.u32 [report + 20], word;\n"
      "st.global.u32 [report + 24], ffpa_expired_parity;\n"
      "shl.b32 role, role, 4;\n"
      "add.u32 role, role, shared;\n"
      "ld.shared.u32 word, [role + %1];\n"
      "st.global.u32 [report + 28], word;\n"
      "ld.shared.u32 word, [role + %1 + 4];\n"
      "st.global.u32 [report + 32], word;\n"
      "ld.shared.u32 word, [role + %1 + 8];\n"
      "st.global.u32 [report + 36], word;\n"
      "ld.shared.u32 word, [role + %1 + 12];\n"
      "st.global.u32 [report + 40], word;\n"
      "fence.acq_rel.sys;\n"
      "mov.u32 word, 1;\n"
      "st.global.u32 [report + 4], word;\n"
      "fence.acq_rel.sys;\n"
      "trap;\n"
      "}" ::"n"(kReport),
      "n"(kRoleTiles), "r"(kernel)
      : "memory");
}

}  // namespace ffpa::sm90::ptx
