// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The machine of roles.h on the host: every named step becomes the events that the GPU would see.
// What a role does depends on trip counts only, never on data, so one run gives its whole script.
#pragma once

#include <string>
#include <vector>

#include "sm90/forward/shared_memory.h"
#include "sm90/forward/work.h"

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

template <class Config_>
class HostMachine {
 public:
  using Config = Config_;
  using SharedMemory = sm90::SharedMemory<Config>;
  struct Output {};
  struct Scores {};
  struct Probs {};
  struct Rows {};

  HostMachine(std::string role, int warpgroup, std::vector<WorkTile> tiles)
      : script{std::move(role), {}}, w_(warpgroup), tiles_(std::move(tiles)) {}

  Script script;

  // --- work tiles
  bool has_tile(int n) const { return n < int(tiles_.size()); }
  WorkTile enter(int n) {
    n_ = n;
    return tiles_[n];
  }
  static int32_t window_left() { return kUnbounded; }
  static int32_t window_right() { return kUnbounded; }
  static int uniform(int x) { return x; }

  // --- barriers
  void wait(Barrier b, uint32_t parity) {
    add({.kind = Event::kWait, .barrier = b, .parity = parity});
  }
  void arrive_one(Barrier b) { add({.kind = Event::kArrive, .barrier = b, .count = 1}); }
  void arrive_warps(Barrier b) { add({.kind = Event::kArrive, .barrier = b, .count = 4}); }
  void arrive_all(Barrier b) { add({.kind = Event::kArrive, .barrier = b, .count = 128}); }
  void expect(Barrier b, uint32_t bytes) {
    add({.kind = Event::kExpect, .barrier = b, .count = int(bytes)});
  }
  void fence_async_proxy() { add({.kind = Event::kFence}); }

  // --- copies
  void load_q(Buffer to, Barrier ready, const WorkTile&) { copy(to, ready, q()); }
  void load_k(Buffer to, Barrier ready, const WorkTile&, int block, int c) {
    copy(to, ready, k(block, c));
  }
  void load_v(Buffer to, Barrier ready, const WorkTile&, int block, int c, int) {
    copy(to, ready, v(block, c));
  }

  // --- tensor cores
  template <int kLeft>
  void wait_groups() {
    add({.kind = Event::kWaitGroups, .count = kLeft});
  }
  void qk(Scores&, Buffer q_tile, Buffer slot, int block, int c) {
    mma(kS, {at(q_tile, q()), at(slot, k(block, c))});
  }
  void pv(Output&, Buffer p_tile, Buffer slot, int block, int c) {
    mma(kO, {at(p_tile, p(block)), at(slot, v(block, c))});
  }
  void pv(Output&, const Probs&, Buffer slot, int block, int c) {
    mma(kO | kP, {at(slot, v(block, c))});
  }

  // --- softmax
  void clear(Output&, Rows&) { touch(kO); }
  void mask(Scores&, int, int) { touch(kS); }
  template <class HalfWay>
  void softmax(const Scores&, Probs&, Rows&, const Rows&, HalfWay half_way) {
    touch(kS | kP);
    half_way();
  }
  void rescale(Output&, Rows&, const Rows&) { touch(kO); }

  // --- shared memory between the warpgroups
  void write_p(Buffer b, const Probs&, int block) { write(b, p(block)); }
  void write_row_max(Buffer b, const Rows&, int block) { write(b, row_max(block)); }
  Rows read_row_max(Buffer b, int block) {
    read(b, row_max(block));
    return {};
  }
  void write_row_sum(Buffer b, Rows&) { write(b, row_sum(w_)); }
  void read_row_sums(Rows&, Buffer b0, Buffer b1) {
    read(b0, row_sum(0));
    read(b1, row_sum(1));
  }
  void store(const Output&, const Rows&, int, int) { touch(kO); }

 private:
  Content content(char tensor, int block, int chunk, int w) const {
    return {tensor, int8_t(n_), int8_t(block), int8_t(chunk), int8_t(w)};
  }
  Content q() const { return content('Q', 0, 0, 0); }
  Content k(int block, int c) const { return content('K', block, c, 0); }
  Content v(int block, int c) const { return content('V', block, c, w_); }
  Content p(int block) const { return content('P', block, 0, 0); }
  Content row_max(int block) const { return content('m', block, 0, 0); }
  Content row_sum(int w) const { return content('l', 0, 0, w); }

  static Access at(Buffer b, Content c) { return {b.offset, b.bytes, c}; }
  void copy(Buffer to, Barrier ready, Content c) {
    add({.kind = Event::kCopy, .barrier = ready, .accesses = {at(to, c)}});
  }
  void mma(int registers, std::vector<Access> reads) {
    add({.kind = Event::kMma, .registers = uint8_t(registers), .accesses = std::move(reads)});
  }
  void write(Buffer b, Content c) { add({.kind = Event::kWrite, .accesses = {at(b, c)}}); }
  void read(Buffer b, Content c) { add({.kind = Event::kRead, .accesses = {at(b, c)}}); }
  void touch(int registers) { add({.kind = Event::kTouch, .registers = uint8_t(registers)}); }
  void add(Event e) {
    e.tile = n_;
    script.events.push_back(std::move(e));
  }

  int w_, n_ = 0;
  std::vector<WorkTile> tiles_;
};

}  // namespace ffpa::sm90
