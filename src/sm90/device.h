// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Per-device state that a launch needs, made at the first call.
#pragma once

#include <cuda.h>

#include <string>

#include "core/problem.h"
#include "sm90/wait_report.h"

namespace ffpa::sm90 {

// Makes `device` current for the life of the object.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  const Status& status() const { return status_; }

 private:
  int before_ = -1;
  Status status_;
};

// The slot of the current device that an expired wait reports to; an error names that wait.
Status wait_report(int device, WaitReport** report);

// [batch or token end][head][group of 64 columns][row][64 columns] of 16-bit elements, 128-byte
// swizzle, see kRaggedRows.
struct MapShape {
  const Rows* rows;
  int64_t batch, heads, length, head_dim;  // dense: length rows; packed: length tokens in all
  bool packed;
  DType dtype;
  int box_rows, box_groups;
};
Status make_tensor_map(const MapShape& shape, const char* name, CUtensorMap* map);

}  // namespace ffpa::sm90
