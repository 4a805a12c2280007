// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// What the library keeps for each device.
#pragma once

#include "gpu/runtime.h"
#include "sm90/wait_report.h"

namespace ffpa::sm90 {

struct Device {
  int sm_count = 0;
  // Host-mapped, so that it can be read after the kernel has trapped: the same memory as the host
  // and the device address it.
  const WaitReport* report = nullptr;
  WaitReport* device_report = nullptr;
};

// Of the current device. Allocates the report on the first call.
Status current_device(int index, const Device** device);

}  // namespace ffpa::sm90
