// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The machines of backward/dkdv_roles.h and backward/dq_roles.h on the host: every named step
// becomes the events that the GPU would see. The CTAs of a pair are one address space, CTA 1 behind
// CTA 0.
#pragma once

#include "protocol/event.h"
#include "sm90/backward/dkdv_roles.h"
#include "sm90/backward/dq_roles.h"

namespace ffpa::sm90 {

inline constexpr uint32_t kCtaStride = 1 << 20;

class Recorder {
 public:
  Recorder(std::string role, int warps, uint32_t base)
      : script{std::move(role), {}}, warps_(warps), base_(base) {}

  Script script;

  void wait(Barrier b, uint32_t parity) {
    add({.kind = Event::kWait, .barrier = own(b), .parity = parity});
  }
  void arrive_one(Barrier b) { arrive(own(b), 1); }
  void arrive_warps(Barrier b) { arrive(own(b), warps_); }
  void arrive_all(Barrier b) { arrive(own(b), 128); }
  void expect(Barrier b, uint32_t bytes) {
    add({.kind = Event::kExpect, .barrier = own(b), .count = int(bytes)});
  }
  void fence_async_proxy() { add({.kind = Event::kFence}); }
  template <int kLeft>
  void wait_groups() {
    add({.kind = Event::kWaitGroups, .count = kLeft});
  }

 protected:
  Barrier own(Barrier b) const { return {b.offset + base_}; }
  Access at(Buffer b, Content c) const { return {b.offset + base_, b.bytes, c}; }
  void arrive(Barrier b, int count) { add({.kind = Event::kArrive, .barrier = b, .count = count}); }
  void copy(Access to, Barrier ready) {
    add({.kind = Event::kCopy, .barrier = ready, .accesses = {to}});
  }
  void mma(uint8_t registers, std::vector<Access> accesses) {
    add({.kind = Event::kMma, .registers = registers, .accesses = std::move(accesses)});
  }
  void touch(uint8_t registers) { add({.kind = Event::kTouch, .registers = registers}); }
  void access(Event::Kind kind, Access a) { add({.kind = kind, .accesses = {a}}); }
  void add(Event e) { script.events.push_back(std::move(e)); }

  const int warps_;
  const uint32_t base_;
};

template <class Config_, int kCta>
class DkdvMachine : public Recorder {
 public:
  using Config = Config_;
  struct Scores {};
  struct Weights {};
  struct Sums {};

  DkdvMachine(std::string role, int warpgroup, int warps, int count)
      : Recorder(std::move(role), warps, kCta * kCtaStride), w_(warpgroup), count_(count) {}

  int block_count() const { return count_; }
  void load_x(Buffer to, Barrier ready) { copy(at(to, x()), own(ready)); }
  void load_scores(Buffer to, Barrier ready, int block, int c) {
    copy(at(to, content('K', block, c)), own(ready));
  }
  void load_values(Buffer to, Barrier ready, int block, int c, int) {
    copy(at(to, content('V', block, c)), own(ready));
  }
  void begin_block(int) {}
  void scores(Scores&, Buffer own_rows, Buffer slot, int block, int c) {
    mma(kS, {at(own_rows, x()), at(slot, content('K', block, c))});
  }
  void add(Sums&, Buffer p, Buffer slot, int block, int c) {
    mma(kO, {at(p, weights(block)), at(slot, content('V', block, c))});
  }
  void add(Sums&, const Weights&, Buffer slot, int block, int c) {
    mma(kO | kP, {at(slot, content('V', block, c))});
  }
  void probabilities(Scores&, Weights&, int) { touch(kS | kP); }
  void gradients(const Scores&, Weights&, int) { touch(kS | kP); }
  void send(Buffer to, Barrier ready, const Scores&, const Weights&, int block) {
    touch(kS | kP);
    const uint32_t peer = (1 - kCta) * kCtaStride;
    copy({to.offset + peer, to.bytes, message(block)}, {ready.offset + peer});
  }
  void expect_message(Barrier ready) { expect(ready, Config::SharedMemory::kPBytes); }
  void receive(Weights&, Buffer from, int block) {
    touch(kP);
    access(Event::kRead, at(from, message(block)));
  }
  void arrive_warps_of_peer(Barrier b) { arrive({b.offset + (1 - kCta) * kCtaStride}, warps_); }
  void write_weights(Buffer p, const Weights&, int block) {
    access(Event::kWrite, at(p, weights(block)));
  }
  void store_weights(Buffer p, int block, int) { access(Event::kStore, at(p, weights(block))); }
  void arrive_stored(Barrier b) {
    if (kCta == 1) Recorder::add({.kind = Event::kWaitStores});
    arrive(own(b), 1);
  }
  void finish_stores() { Recorder::add({.kind = Event::kWaitStores}); }
  void begin_sums(Sums&, int) { touch(kO); }
  void store(const Sums&, int) { touch(kO); }

 private:
  static Content x() { return {'Q', kCta, 0, 0, 0}; }
  Content content(char tensor, int block, int chunk) const {
    return {tensor, kCta, int8_t(block), int8_t(chunk), int8_t(w_)};
  }
  static Content weights(int block) { return {'P', kCta, int8_t(block), 0, 0}; }
  static Content message(int block) { return {'M', 0, int8_t(block), 0, 0}; }

  const int w_, count_;
};

template <class Config_>
class DqMachine : public Recorder {
 public:
  using Config = Config_;
  using S = typename Config::SharedMemory;
  struct Sums {};

  // Steps, and those of each half.
  DqMachine(std::string role, int warps, int count, Range half0, Range half1)
      : Recorder(std::move(role), warps, 0), count_(count), halves_{half0, half1} {}

  int step_count() const { return count_; }
  int own_begin(int w) const { return halves_[w].begin; }
  int own_end(int w) const { return halves_[w].end; }
  void load(uint32_t s, Barrier ready, int i) {
    int bytes = int(S::keys(s).bytes);
    for (int w = 0; w < 2; ++w) bytes += exists(w, i) ? int(S::ds(s, w).bytes) : 0;
    expect(ready, bytes);
    for (int w = 0; w < 2; ++w) {
      if (exists(w, i)) copy(at(S::ds(s, w), {'P', int8_t(w), int8_t(i), 0, 0}), own(ready));
    }
    copy(at(S::keys(s), keys(i)), own(ready));
  }
  void clear(Sums&) { touch(kO); }
  void add(Sums&, Buffer ds, Buffer key_tile, int i) {
    const int w = ds.offset == S::ds(i % Config::kStages, 0).offset ? 0 : 1;
    mma(kO, {at(ds, {'P', int8_t(w), int8_t(i), 0, 0}), at(key_tile, keys(i))});
  }
  void store(const Sums&, int) { touch(kO); }

 private:
  bool exists(int w, int i) const { return halves_[w].begin <= i && i < halves_[w].end; }
  static Content keys(int i) { return {'K', 0, int8_t(i), 0, 0}; }

  const int count_;
  const Range halves_[2];
};

}  // namespace ffpa::sm90
