// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// mbarrier instructions, and the wait that gives up.
#pragma once

#include <cstdint>

#include "sm90/wait_report.h"

// A C name, for the asm of report_expired_wait.
extern "C" {
extern __shared__ __align__(1024) char ffpa_shared[];
}

namespace ffpa::sm90::ptx {

#ifndef FFPA_WAIT_TRIES
#define FFPA_WAIT_TRIES 4000000  // of try_wait, each of which sleeps a little by itself
#endif
#define FFPA_STRING_(x) #x
#define FFPA_STRING(x) FFPA_STRING_(x)

// Bounded wait for the completion of the phase with this parity. All of it must be ONE asm block: a
// `trap` that is a statement of its own makes ptxas give up the setmaxnreg budget (3-6x slower).
// And it must not need registers: the report is written by code that all waits of the kernel share,
// reached by a branch that only ptxas sees. Reading the clock in the loop costs 1.5 % (steady).
__device__ __forceinline__ void declare_waits() {
  asm volatile(".reg .u32 ffpa_expired_barrier, ffpa_expired_parity;");
}
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
// itself. Role r keeps its work tile and head at kTiles + 8 r, the pointer to the report lies at
// kReport. The first wait to expire reports.
template <int kTiles, int kReport>
__device__ __forceinline__ void report_expired_wait() {
  asm volatile(
      "FFPA_WAIT_EXPIRED:\n"
      "{\n"
      ".reg .u32 word, address;\n"
      ".reg .u64 report;\n"
      ".reg .pred lost, producer;\n"
      "mov.u32 word, ffpa_shared;\n"
      "ld.shared.u64 report, [word + %1];\n"
      "atom.global.exch.b32 word, [report + 28], 1;\n"
      "setp.ne.u32 lost, word, 0;\n"
      "LOST:\n"
      "@lost bra LOST;\n"
      "mov.u32 word, %%ctaid.x;\n"
      "st.global.u32 [report + 4], word;\n"
      "mov.u32 word, %%tid.x;\n"
      "setp.ge.u32 producer, word, 256;\n"  // role = tid / 128, or 2 and 3 for warps 8 and 9
      "shr.u32 address, word, 7;\n"
      "shr.u32 word, word, 5;\n"
      "@producer sub.u32 address, word, 6;\n"
      "st.global.u32 [report + 8], address;\n"
      "shl.b32 address, address, 3;\n"
      "mov.u32 word, ffpa_shared;\n"
      "add.u32 address, address, word;\n"
      "sub.u32 word, ffpa_expired_barrier, word;\n"
      "st.global.u32 [report + 12], word;\n"
      "st.global.u32 [report + 16], ffpa_expired_parity;\n"
      "ld.shared.u32 word, [address + %0];\n"
      "st.global.u32 [report + 20], word;\n"
      "ld.shared.u32 word, [address + %0 + 4];\n"
      "st.global.u32 [report + 24], word;\n"
      "fence.acq_rel.sys;\n"
      "mov.u32 word, 1;\n"
      "st.global.u32 [report], word;\n"
      "fence.acq_rel.sys;\n"
      "trap;\n"
      "}" ::"n"(kTiles),
      "n"(kReport)
      : "memory");
}

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

}  // namespace ffpa::sm90::ptx
