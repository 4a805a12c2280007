// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The machine of forward/roles.h on the host: every named step becomes the events that the GPU
// would see. What a role does depends on trip counts only, never on data, so one run gives its
// script.
#pragma once

#include "protocol/event.h"
#include "sm90/forward/roles.h"
#include "sm90/forward/rows_roles.h"

namespace ffpa::sm90 {

template <class Config_>
class ForwardMachine {
 public:
  using Config = Config_;
  template <int>
  struct Output {};
  struct Scores {};
  struct Probs {};
  struct Rows {};
  struct Copies {};

  // `counts`: key blocks of the tiles; `warps`: of the role.
  ForwardMachine(std::string role, int warpgroup, int warps, std::vector<int> counts)
      : script{std::move(role), {}}, w_(warpgroup), warps_(warps), counts_(std::move(counts)) {}

  Script script;

  // --- work tiles
  bool write_tile(Buffer to, uint32_t n) {
    n_ = int(n);
    write(to, tile());
    return n < counts_.size();
  }
  KeyBlocks read_tile(Buffer b, uint32_t n) {
    n_ = int(n);
    read(b, tile());
    return {n < counts_.size() ? counts_[n] : -1, 0, 0};
  }
  Copies read_copies(Buffer b) {
    read(b, tile());
    return {};
  }
  static int uniform(int x) { return x; }

  // --- barriers
  void wait(Barrier b, uint32_t parity) {
    add({.kind = Event::kWait, .barrier = b, .parity = parity});
  }
  void arrive_one(Barrier b) { add({.kind = Event::kArrive, .barrier = b, .count = 1}); }
  void arrive_warps(Barrier b) { add({.kind = Event::kArrive, .barrier = b, .count = warps_}); }
  void arrive_all(Barrier b) { add({.kind = Event::kArrive, .barrier = b, .count = 128}); }
  void expect(Barrier b, uint32_t bytes) {
    add({.kind = Event::kExpect, .barrier = b, .count = int(bytes)});
  }
  void fence_async_proxy() { add({.kind = Event::kFence}); }

  // --- copies
  void load_q(Buffer to, Barrier ready, Buffer b) {
    read(b, tile());
    copy(to, ready, q());
  }
  void load_k(Buffer to, Barrier ready, const Copies&, int block, int c) {
    copy(to, ready, k(block, c));
  }
  void load_v(Buffer to, Barrier ready, const Copies&, int block, int c, int) {
    copy(to, ready, v(block, c));
  }

  void load_k_block(Buffer to, Barrier ready, const Copies&, int block) {
    copy(to, ready, k(block, 0));
  }

  // --- tensor cores
  template <int kLeft>
  void wait_groups() {
    add({.kind = Event::kWaitGroups, .count = kLeft});
  }
  void qk(Scores&, Buffer q_tile, Buffer slot, int block, int c) {
    mma(kS, {at(q_tile, q()), at(slot, k(block, c))});
  }
  template <int kColumns>
  void pv(Output<kColumns>&, Buffer p_tile, Buffer slot, int block, int c) {
    mma(kO, {at(p_tile, p(block)), at(slot, v(block, c))});
  }
  template <int kColumns>
  void pv(Output<kColumns>&, const Probs&, Buffer slot, int block, int c) {
    mma(kO | kP, {at(slot, v(block, c))});
  }

  void qk_block(Scores&, Buffer q_tile, Buffer slot, int block, int) {
    mma(kS, {at(q_tile, q()), at(slot, k(block, 0))});
  }
  template <int kColumns>
  void pv_block(Output<kColumns>&, const Probs&, Buffer slot, int block) {
    mma(kO | kP, {at(slot, v(block, 0))});
  }

  // --- softmax
  template <int kColumns>
  void clear(Output<kColumns>&, Rows&) {
    touch(kO);
  }
  static bool has_softcap() { return true; }
  void softcap(Scores&) { touch(kS); }
  void mask(Scores&, Buffer b, int) {
    read(b, tile());
    touch(kS);
  }
  template <class HalfWay>
  void softmax(const Scores&, Probs&, Rows&, const Rows&, HalfWay half_way) {
    touch(kS | kP);
    half_way();
  }
  void exponentiate(Scores&, Rows&, const Rows&) { touch(kS); }
  void pack(Probs&, const Scores&) { touch(kS | kP); }
  void sum_rows(Rows&) {}
  template <int kColumns>
  void rescale(Output<kColumns>&, Rows&, const Rows&) {
    touch(kO);
  }

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
  template <int kColumns>
  void store(const Output<kColumns>&, const Rows&, Buffer b, int) {
    read(b, tile());
    touch(kO);
  }

 private:
  Content content(char tensor, int block, int chunk, int w) const {
    return {tensor, int8_t(n_), int8_t(block), int8_t(chunk), int8_t(w)};
  }
  Content tile() const { return content('T', 0, 0, 0); }
  Content q() const { return content('Q', 0, 0, 0); }
  Content k(int block, int c) const { return content('K', block, c, 0); }
  // Both warpgroups of a kernel that splits rows read the same V.
  Content v(int block, int c) const { return content('V', block, c, Config::kSplitRows ? 0 : w_); }
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

  int w_, warps_, n_ = 0;
  std::vector<int> counts_;
};

}  // namespace ffpa::sm90
