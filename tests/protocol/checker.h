// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Explores every interleaving of a set of role scripts, breadth first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/event.h"

namespace ffpa::sm90 {

struct BarrierInfo {
  uint32_t offset;
  int arrivals;
  std::string name;
};
struct BufferInfo {
  uint32_t offset, bytes;
  std::string name;
};
struct Layout {
  std::vector<BarrierInfo> barriers;
  std::vector<BufferInfo> buffers;
};

enum class Steps {
  kEvery,    // each event, each TMA completion, each wgmma completion is a step of its own
  kReduced,  // see README: a wait and what follows it are one step, completions come as late as
             // possible
};

struct Verdict {
  std::string error;  // empty: no interleaving breaks a rule
  std::vector<std::string> trace;
  long states = 0;
};

// The end of the trace, a line each.
std::string last_events(const Verdict& v, size_t lines);
// "slot_ready[0][2]"; indices below 0 are left out.
std::string indexed(std::string name, int i, int j = -1);

Verdict check(const std::vector<Script>& roles, const Layout& layout, Steps steps);

}  // namespace ffpa::sm90
