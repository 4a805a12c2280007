// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// What a role does to shared memory, as the checker sees it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sm90/pipeline/storage.h"

namespace ffpa::sm90 {

// What a buffer holds: which tensor, of which tile of the CTA, which block and chunk.
struct Content {
  char tensor = '-';  // Q, K, V, P, m(ax), l (sum); '-' = nothing yet
  int8_t tile = 0, block = 0, chunk = 0, w = 0;
  bool operator==(const Content&) const = default;
};

// Register tensors that a wgmma group or a step uses.
enum Registers : uint8_t { kNone = 0, kS = 1, kO = 2, kP = 4 };

struct Access {
  uint32_t offset, bytes;
  Content content;
};

struct Event {
  enum Kind : uint8_t {
    kWait,    // barrier, parity
    kArrive,  // barrier, count
    kExpect,  // barrier, count = bytes: one arrival, and bytes that copies must deliver
    kCopy,    // access, barrier: TMA fills the buffer, later, and then counts the bytes
    kMma,     // accesses: a wgmma group reads shared memory and uses registers, until it is retired
    kWaitGroups,  // count: only so many groups may still run
    kWrite,       // access: ordinary stores
    kRead,        // access: ordinary loads
    kFence,       // ordinary stores so far become visible to wgmma and TMA
    kTouch,       // registers: read or written by ordinary instructions
    kStore,       // access: a bulk store reads shared memory, until it is waited for
    kWaitStores,  // all bulk stores of the role have read
  } kind;
  Barrier barrier{};
  uint32_t parity = 0;
  int count = 0;
  uint8_t registers = kNone;
  std::vector<Access> accesses;
  int tile = 0;
};

struct Script {
  std::string role;
  std::vector<Event> events;
};

}  // namespace ffpa::sm90
