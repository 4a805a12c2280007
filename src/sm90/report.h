// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Names for what a WaitReport holds.
#pragma once

#include <cstdint>
#include <string>

#include "sm90/pipeline/storage.h"

namespace ffpa::sm90 {

struct KernelName {
  std::string text;  // empty: no such kernel
  BarrierEntry (*barrier)(int i) = nullptr;
  int barriers = 0;
  const char* roles = "";  // one behind the other, each ends with a zero; the last one is empty
};

// Numbers of kernels in reports: those of the forward start at 0.
inline constexpr uint32_t kFirstBackwardKernel = 64;
KernelName forward_kernel_name(uint32_t kernel);
KernelName backward_kernel_name(uint32_t kernel);

}  // namespace ffpa::sm90
