// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "sm90/report.h"

#include <cstring>

#include "sm90/device.h"
#include "sm90/launch.h"

namespace ffpa::sm90 {
namespace {

std::string role_name(const KernelName& kernel, uint32_t role) {
  const char* name = kernel.roles;
  for (; role > 0 && *name; --role) name += std::strlen(name) + 1;
  return *name ? name : "?";
}

std::string barrier_name(const KernelName& kernel, uint32_t offset) {
  for (int i = 0; i < kernel.barriers; ++i) {
    const BarrierEntry e = kernel.barrier(i);
    if (e.barrier.offset != offset) continue;
    std::string name = e.event;
    if (e.w >= 0) name += "[" + std::to_string(e.w) + "]";
    if (e.s >= 0) name += "[" + std::to_string(e.s) + "]";
    return name;
  }
  return "?";
}

}  // namespace

Status check_waits(const Device& device) {
  const WaitReport& r = *device.report;
  if (!r.expired) return {};
  const KernelName kernel = r.kernel < kFirstBackwardKernel
                                ? forward_kernel_name(r.kernel)
                                : backward_kernel_name(r.kernel - kFirstBackwardKernel);
  const uint32_t role = r.thread < 256 ? r.thread / 128 : r.thread / 32 - 6;
  return Status::runtime("a kernel gave up a wait (" + (kernel.text.empty() ? "?" : kernel.text) +
                         "): " + role_name(kernel, role) + " of CTA " + std::to_string(r.cta) +
                         " waited for " + barrier_name(kernel, r.barrier) + ", phase parity " +
                         std::to_string(r.parity) + ", in its tile " + std::to_string(r.n) +
                         ": sequence " + std::to_string(r.sequence) + ", head " +
                         std::to_string(r.head) + ", row " + std::to_string(r.q_row) +
                         ". The CUDA context is lost");
}

}  // namespace ffpa::sm90
