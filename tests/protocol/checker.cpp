// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "protocol/checker.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <type_traits>
#include <unordered_map>

namespace ffpa::sm90 {
namespace {

constexpr int kMaxRoles = 8, kMaxBarriers = 56, kMaxBuffers = 32, kMaxPending = 12;

struct State {
  struct Phase {
    uint16_t completed = 0;
    int16_t pending = 0;  // arrivals that the current phase still needs
    int32_t bytes = 0;    // bytes that it still needs
  };
  struct Contents {
    Content content;
    bool unfenced = false;  // written by ordinary stores, not yet visible to wgmma
    uint8_t writer = 0;
  };
  struct Role {
    uint16_t next = 0;  // event
    uint8_t num_copies = 0, num_groups = 0;
    uint16_t copies[kMaxPending] = {}, groups[kMaxPending] = {};  // events whose work still runs
    uint16_t store = 0, padding = 0;  // 1 + event of the bulk store that still reads
  };
  Phase barriers[kMaxBarriers];
  Contents buffers[kMaxBuffers];
  Role roles[kMaxRoles];
};
static_assert(std::has_unique_object_representations_v<State::Phase>);

// Visited states are known by 128 bits of hash.
struct Key {
  uint64_t a, b;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& k) const { return k.a; }
};

Key hash(const State& s) {
  static_assert(sizeof(State) % 8 == 0);
  Key k{0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F};
  const char* p = reinterpret_cast<const char*>(&s);
  for (size_t i = 0; i < sizeof(State); i += 8) {
    uint64_t x;
    std::memcpy(&x, p + i, 8);
    k.a = (k.a ^ x) * 0xFF51AFD7ED558CCD;
    k.a ^= k.a >> 32;
    k.b = (k.b + x) * 0xC4CEB9FE1A85EC53;
    k.b ^= k.b >> 29;
  }
  return k;
}

// One move: role r runs on, or (Steps::kEvery) a copy or the oldest wgmma group of it completes.
struct Move {
  enum Kind : uint8_t { kRun, kCopyDone, kGroupDone } kind;
  uint8_t role, index;
};

class Checker {
 public:
  Checker(const std::vector<Script>& roles, const Layout& layout, Steps steps)
      : roles_(roles),
        infos_(layout.barriers),
        buffers_(layout.buffers),
        every_(steps == Steps::kEvery) {
    check_layout();
    for (const Script& role : roles) {
      scripts_.emplace_back();
      waits_.emplace_back(infos_.size());
      for (const Event& e : role.events) scripts_.back().push_back(compile(e));
    }
  }

  Verdict run() {
    Verdict verdict;
    verdict.error = layout_error_;
    if (!verdict.error.empty()) return verdict;
    State start;
    for (size_t i = 0; i < infos_.size(); ++i) start.barriers[i].pending = infos_[i].arrivals;
    std::unordered_map<Key, uint32_t, KeyHash> seen;
    std::vector<std::pair<uint32_t, Move>> parents;
    std::deque<State> frontier{start};
    seen.emplace(hash(start), 0);
    parents.push_back({0, {}});
    for (uint32_t at = 0; !frontier.empty(); ++at) {
      const State state = frontier.front();
      frontier.pop_front();
      int moves = 0;
      for (const Move& move : moves_of(state)) {
        State next = state;
        std::string error;
        if (!make(next, move, error, nullptr)) continue;
        ++moves;
        const auto [where, is_new] = seen.emplace(hash(next), uint32_t(parents.size()));
        if (is_new || !error.empty()) {
          parents.push_back({at, move});
          frontier.push_back(next);
        }
        if (!error.empty()) return fail(verdict, error, parents, uint32_t(parents.size() - 1));
      }
      if (moves == 0) {
        const std::string error = at_rest(state);
        if (!error.empty()) return fail(verdict, error, parents, at);
      }
    }
    verdict.states = long(parents.size());
    return verdict;
  }

 private:
  struct Step {  // an Event with numbers in place of offsets
    const Event* event;
    int barrier = -1;
    int buffers[2] = {-1, -1};
  };

  // No two buffers or barriers share a byte, and everything fits the state.
  void check_layout() {
    std::vector<BufferInfo> all = buffers_;
    for (const BarrierInfo& b : infos_) all.push_back({b.offset, 8, b.name});
    std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.offset < b.offset; });
    for (size_t i = 1; i < all.size(); ++i) {
      if (all[i - 1].offset + all[i - 1].bytes > all[i].offset) {
        layout_error_ = all[i - 1].name + " and " + all[i].name + " overlap in shared memory";
      }
    }
    if (infos_.size() > kMaxBarriers || buffers_.size() > kMaxBuffers) layout_error_ = "too many";
  }

  Step compile(const Event& e) {
    Step step{&e};
    if (e.kind <= Event::kCopy) {
      const auto it = std::find_if(infos_.begin(), infos_.end(), [&](const BarrierInfo& b) {
        return b.offset == e.barrier.offset;
      });
      if (it == infos_.end()) layout_error_ = "an event names no barrier";
      step.barrier = int(it - infos_.begin());
      if (e.kind == Event::kWait)
        waits_.back()[step.barrier].push_back(int(scripts_.back().size()));
    }
    for (size_t i = 0; i < e.accesses.size(); ++i) {
      const Access& a = e.accesses[i];
      const auto it = std::find_if(buffers_.begin(), buffers_.end(), [&](const BufferInfo& b) {
        return b.offset == a.offset && b.bytes >= a.bytes;
      });
      if (it == buffers_.end()) layout_error_ = "an event names no buffer";
      step.buffers[i] = int(it - buffers_.begin());
    }
    return step;
  }

  const Step& step(int role, int index) const { return scripts_[role][index]; }
  const Step* next(const State& s, int r) const {
    return s.roles[r].next < scripts_[r].size() ? &step(r, s.roles[r].next) : nullptr;
  }

  std::vector<Move> moves_of(const State& s) const {
    std::vector<Move> moves;
    for (uint8_t r = 0; r < scripts_.size(); ++r) {
      if (next(s, r)) moves.push_back({Move::kRun, r, 0});
      if (!every_) continue;
      for (uint8_t i = 0; i < s.roles[r].num_copies; ++i) moves.push_back({Move::kCopyDone, r, i});
      if (s.roles[r].num_groups > 0) moves.push_back({Move::kGroupDone, r, 0});
    }
    return moves;
  }

  // Returns false if the role is blocked. With `trace`, also tells what happened.
  bool make(State& s, const Move& m, std::string& error, std::vector<std::string>* trace) const {
    if (m.kind == Move::kCopyDone) {
      finish_copy(s, m.role, m.index, error, trace);
      return true;
    }
    if (m.kind == Move::kGroupDone) {
      finish_group(s, m.role, trace);
      return true;
    }
    bool arrived = false;
    for (int done = 0;; ++done) {
      const Step* step = next(s, m.role);
      if (!step) return done > 0;
      const Event& e = *step->event;
      // A step of the reduction: at most one wait, then accesses, then what lets others go on.
      const bool starts_new =
          every_ || e.kind == Event::kWait || (arrived && e.kind != Event::kArrive);
      if (done > 0 && starts_new) return true;
      if (!run_event(s, m.role, *step, error, trace)) return done > 0;
      ++s.roles[m.role].next;
      if (!error.empty()) return true;
      arrived |= e.kind == Event::kArrive || e.kind == Event::kCopy;
    }
  }

  // Returns false if the role has to wait.
  bool run_event(State& s, int r, const Step& step, std::string& error,
                 std::vector<std::string>* trace) const {
    const Event& e = *step.event;
    State::Role& role = s.roles[r];
    if (e.kind == Event::kWait) {
      if (!every_) finish_copies_for(s, step.barrier, error, trace);
      if (s.barriers[step.barrier].completed % 2 == int(e.parity)) return false;
    } else if (e.kind == Event::kWaitGroups) {
      if (every_ && role.num_groups > e.count) return false;
      while (role.num_groups > e.count) finish_group(s, r, trace);
    }
    if (e.kind == Event::kWaitStores) role.store = 0;
    if (trace && e.kind != Event::kWaitGroups) trace->push_back(line(r, e, describe(step)));
    if (e.kind == Event::kArrive) arrive(s, step.barrier, e.count, 0, error);
    if (e.kind == Event::kExpect) arrive(s, step.barrier, 1, e.count, error);
    if (!e.accesses.empty()) access(s, r, step, error);
    if (e.kind == Event::kFence) {
      for (State::Contents& b : s.buffers) {
        if (b.writer == r) b.unfenced = false;
      }
    }
    if (e.kind == Event::kTouch) {
      for (int i = 0; i < role.num_groups; ++i) {
        if (this->step(r, role.groups[i]).event->registers & e.registers) {
          error = "registers are used while a wgmma that holds them is in flight";
        }
      }
    }
    return true;
  }

  void access(State& s, int r, const Step& step, std::string& error) const {
    const Event& e = *step.event;
    State::Role& role = s.roles[r];
    if (e.kind == Event::kMma || e.kind == Event::kRead || e.kind == Event::kStore) {
      for (size_t i = 0; i < e.accesses.size(); ++i) {
        check_read(s, step.buffers[i], e.accesses[i], e.kind != Event::kRead, error);
      }
    } else {
      check_write(s, step.buffers[0], error);
      s.buffers[step.buffers[0]] = {};  // a copy in flight: nothing to read yet
    }
    if (e.kind == Event::kWrite) {
      s.buffers[step.buffers[0]] = {e.accesses[0].content, true, uint8_t(r)};
    }
    if (role.num_copies == kMaxPending || role.num_groups == kMaxPending) {
      error = "the checker has no room for so much in flight";
    } else if (e.kind == Event::kCopy) {
      role.copies[role.num_copies++] = role.next;
    } else if (e.kind == Event::kMma) {
      role.groups[role.num_groups++] = role.next;
    } else if (e.kind == Event::kStore) {
      if (role.store) error = "a bulk store while another one reads";
      role.store = uint16_t(role.next + 1);
    }
  }

  void arrive(State& s, int barrier, int count, int bytes, std::string& error) const {
    State::Phase& b = s.barriers[barrier];
    b.pending -= count;
    b.bytes += bytes;
    if (b.pending < 0) error = infos_[barrier].name + ": more arrivals than one phase takes";
    complete_phase(s, barrier, error);
  }

  void complete_phase(State& s, int barrier, std::string& error) const {
    State::Phase& b = s.barriers[barrier];
    if (b.pending != 0 || b.bytes != 0) return;
    b.pending = infos_[barrier].arrivals;
    const int phase = b.completed++;
    // A waiter that has not yet passed the phase before this one would now see the wrong parity.
    for (size_t r = 0; r < scripts_.size(); ++r) {
      const std::vector<int>& waits = waits_[r][barrier];
      const int passed =
          int(std::lower_bound(waits.begin(), waits.end(), s.roles[r].next) - waits.begin());
      if (passed == int(waits.size())) continue;
      const int target = passed - int(step(r, waits[0]).event->parity);
      if (target < phase) {
        error = infos_[barrier].name + ": completes phase " + std::to_string(phase) + " before " +
                roles_[r].role + " has seen phase " + std::to_string(target);
      }
    }
  }

  // Completion as late as possible: when somebody waits for it.
  void finish_copies_for(State& s, int barrier, std::string& error,
                         std::vector<std::string>* trace) const {
    for (int r = 0; r < int(scripts_.size()); ++r) {
      for (int i = 0; i < s.roles[r].num_copies;) {
        const bool wanted = step(r, s.roles[r].copies[i]).barrier == barrier;
        wanted ? finish_copy(s, r, i, error, trace) : void(++i);
      }
    }
  }

  void finish_copy(State& s, int r, int i, std::string& error,
                   std::vector<std::string>* trace) const {
    State::Role& role = s.roles[r];
    const Step& copy = step(r, role.copies[i]);
    if (trace) {
      trace->push_back(
          line(r, *copy.event, "copy of " + tell(copy.event->accesses[0]) + " is complete"));
    }
    for (int k = i; k + 1 < role.num_copies; ++k) role.copies[k] = role.copies[k + 1];
    role.copies[--role.num_copies] = 0;
    s.buffers[copy.buffers[0]] = {copy.event->accesses[0].content, false, uint8_t(r)};
    s.barriers[copy.barrier].bytes -= int(copy.event->accesses[0].bytes);
    complete_phase(s, copy.barrier, error);
  }

  void finish_group(State& s, int r, std::vector<std::string>* trace) const {
    State::Role& role = s.roles[r];
    if (trace) {
      const Event& e = *step(r, role.groups[0]).event;
      trace->push_back(line(r, e, "wgmma on " + tell(e.accesses.back()) + " is complete"));
    }
    for (int k = 0; k + 1 < role.num_groups; ++k) role.groups[k] = role.groups[k + 1];
    role.groups[--role.num_groups] = 0;
  }

  // A write may not meet a copy or a wgmma that uses the buffer.
  void check_write(const State& s, int buffer, std::string& error) const {
    for (size_t q = 0; q < scripts_.size(); ++q) {
      if (s.roles[q].store && step(q, s.roles[q].store - 1).buffers[0] == buffer) {
        error = buffer_name(buffer) + ": overwritten while a bulk store of " + roles_[q].role +
                " reads it";
      }
      for (int i = 0; i < s.roles[q].num_copies; ++i) {
        if (step(q, s.roles[q].copies[i]).buffers[0] == buffer) {
          error = buffer_name(buffer) + ": written while a copy into it is in flight";
        }
      }
      for (int i = 0; i < s.roles[q].num_groups; ++i) {
        const Step& g = step(q, s.roles[q].groups[i]);
        if (g.buffers[0] == buffer || g.buffers[1] == buffer) {
          error = buffer_name(buffer) + ": overwritten while a wgmma of " + roles_[q].role +
                  " reads it";
        }
      }
    }
  }

  void check_read(const State& s, int buffer, const Access& wanted, bool by_wgmma,
                  std::string& error) const {
    const State::Contents& b = s.buffers[buffer];
    if (!(b.content == wanted.content)) {
      error =
          buffer_name(buffer) + ": holds " + tell(b.content) + ", read as " + tell(wanted.content);
    } else if (by_wgmma && b.unfenced) {
      error = buffer_name(buffer) + ": read by wgmma, written without a proxy fence";
    }
  }

  // Nothing can move: all roles are done and the barriers even, or it is a deadlock.
  std::string at_rest(const State& s) const {
    std::string stuck;
    for (size_t r = 0; r < scripts_.size(); ++r) {
      if (const Step* n = next(s, int(r))) {
        stuck += "\n    " +
                 line(int(r), *n->event,
                      "waits for " + name(*n) + " parity " + std::to_string(n->event->parity));
      }
    }
    if (!stuck.empty()) return "deadlock:" + stuck;
    for (size_t i = 0; i < infos_.size(); ++i) {
      const State::Phase& b = s.barriers[i];
      if (b.pending != infos_[i].arrivals || b.bytes != 0)
        return infos_[i].name + ": exit in mid-phase";
      for (size_t r = 0; r < scripts_.size(); ++r) {
        const size_t waits = waits_[r][i].size();
        if (waits != 0 && waits != b.completed) {
          return infos_[i].name + ": at exit, " + std::to_string(b.completed) + " phases but " +
                 roles_[r].role + " waited " + std::to_string(waits) + " times";
        }
      }
    }
    for (size_t r = 0; r < scripts_.size(); ++r) {
      if (s.roles[r].num_copies) return roles_[r].role + ": exit with a copy in flight";
      if (s.roles[r].num_groups) return roles_[r].role + ": exit with a wgmma in flight";
      if (s.roles[r].store) return roles_[r].role + ": exit with a bulk store in flight";
    }
    return "";
  }

  Verdict fail(Verdict& v, const std::string& error,
               const std::vector<std::pair<uint32_t, Move>>& parents, uint32_t at) const {
    std::vector<Move> path;
    for (uint32_t i = at; i != 0; i = parents[i].first) path.push_back(parents[i].second);
    State s;
    for (size_t i = 0; i < infos_.size(); ++i) s.barriers[i].pending = infos_[i].arrivals;
    for (auto m = path.rbegin(); m != path.rend(); ++m) {
      std::string ignored;
      make(s, *m, ignored, &v.trace);
    }
    v.error = error;
    v.states = long(parents.size());
    return v;
  }

  // --- words
  std::string describe(const Step& step) const {
    const Event& e = *step.event;
    std::string what;
    for (size_t i = 0; i < e.accesses.size(); ++i) {
      what += " " + tell(e.accesses[i]) + " in " + buffer_name(step.buffers[i]);
    }
    switch (e.kind) {
      case Event::kWait:
        return "passes " + name(step) + " parity " + std::to_string(e.parity);
      case Event::kArrive:
        return "arrives at " + name(step);
      case Event::kExpect:
        return "expects " + std::to_string(e.count) + " bytes at " + name(step);
      case Event::kCopy:
        return "starts a copy:" + what;
      case Event::kMma:
        return "issues wgmma on" + what;
      case Event::kWrite:
        return "writes" + what;
      case Event::kRead:
        return "reads" + what;
      case Event::kFence:
        return "fences its writes";
      case Event::kStore:
        return "starts a bulk store of" + what;
      case Event::kWaitStores:
        return "waits for its bulk stores";
      default:
        return "uses registers";
    }
  }
  std::string name(const Step& step) const {
    return step.barrier < 0 ? "its wgmma groups" : infos_[step.barrier].name;
  }
  const std::string& buffer_name(int b) const { return buffers_[b].name; }
  static std::string tell(const Access& a) { return tell(a.content); }
  static std::string tell(const Content& c) {
    if (c.tensor == '-') return "nothing";
    std::string s(1, c.tensor);
    if (c.tensor == 'm') s = "row_max";
    if (c.tensor == 'l') s = "row_sum" + std::to_string(c.w);
    if (c.tensor == 'T') return "work tile " + std::to_string(c.tile);
    s += "(tile " + std::to_string(c.tile);
    if (c.tensor != 'Q' && c.tensor != 'l') s += ", block " + std::to_string(c.block);
    if (c.tensor == 'K' || c.tensor == 'V') s += ", chunk " + std::to_string(c.chunk);
    return s + ")";
  }
  std::string line(int r, const Event& e, const std::string& what) const {
    return roles_[r].role + ", tile " + std::to_string(e.tile) + ": " + what;
  }

  const std::vector<Script>& roles_;
  const std::vector<BarrierInfo>& infos_;
  const std::vector<BufferInfo>& buffers_;
  const bool every_;
  std::vector<std::vector<Step>> scripts_;            // [role][event]
  std::vector<std::vector<std::vector<int>>> waits_;  // [role][barrier]: the role's waits on it
  std::string layout_error_;
};

}  // namespace

Verdict check(const std::vector<Script>& roles, const Layout& layout, Steps steps) {
  return Checker(roles, layout, steps).run();
}

std::string last_events(const Verdict& v, size_t lines) {
  std::string s;
  for (size_t i = v.trace.size() > lines ? v.trace.size() - lines : 0; i < v.trace.size(); ++i) {
    s += "\n  " + v.trace[i];
  }
  return s;
}

std::string indexed(std::string name, int i, int j) {
  if (i >= 0) name += "[" + std::to_string(i) + "]";
  return j >= 0 ? name + "[" + std::to_string(j) + "]" : name;
}

}  // namespace ffpa::sm90
