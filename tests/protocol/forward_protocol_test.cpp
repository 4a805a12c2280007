// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The protocol of the forward kernel: the very role source that the GPU runs, every interleaving.
// Proofs over lists of tiles; seeded faults and mutants, which must be found, test the checker.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "protocol/checker.h"
#include "protocol/forward_machine.h"

namespace ffpa::sm90 {
namespace {

using TileLists = std::vector<std::vector<int>>;  // [role][tile]: key blocks
constexpr int kConsumer0 = 0, kConsumer1 = 1, kProducer0 = 2, kProducer1 = 3, kScheduler = 4;

TileLists same_for_all(const std::vector<int>& counts) { return TileLists(5, counts); }

// The forward with another ring.
template <int kStages_, int kKChunks_, int kVChunks_>
struct TestConfig {
  using SharedMemory = ForwardSharedMemory<TestConfig>;
  static constexpr bool kSplitRows = false;
  static constexpr int kHeadDim = 512, kBlockM = 64, kBlockN = 128, kColumns0 = 256;
  static constexpr int kStages = kStages_, kKChunks = kKChunks_, kKPass = kKChunks_;
  static constexpr int kVChunks = kVChunks_, kEarlyV = kVChunks_ / 2;
  static constexpr int kSlotBytes = 16384, kKBytes = 16384;
  static constexpr int v_bytes(int) { return 16384; }
};
template <int kHeadDim>
using Real = ForwardConfig<kHeadDim, DType::kBFloat16>;
// A kernel for head dims up to 256: with and without turns.
using RowsInTurns = RowsConfig<128, 128, DType::kBFloat16>;
using RowsAtWill = RowsConfig<256, 256, DType::kBFloat16>;

template <class Config>
std::vector<Script> record(const TileLists& tiles) {
  using Machine = ForwardMachine<Config>;
  std::vector<Script> scripts;
  for (int w = 0; w < 2; ++w) {
    Machine m("consumer " + std::to_string(w), w, 4, tiles[kConsumer0 + w]);
    if constexpr (Config::kSplitRows) {
      RowsConsumer<Machine>(m, w).run();
    } else {
      Consumer<Machine, Config::kColumns0>(m, w).run();
    }
    scripts.push_back(m.script);
  }
  for (int w = 0; w < 2; ++w) {
    Machine m("producer " + std::to_string(w), w, 1, tiles[kProducer0 + w]);
    if constexpr (Config::kSplitRows) {
      produce_rows(m, w);
    } else {
      produce(m, w);
    }
    scripts.push_back(m.script);
  }
  Machine m("scheduler", 0, 1, tiles[kScheduler]);
  schedule(m);
  scripts.push_back(m.script);
  return scripts;
}

template <class Config>
Layout layout() {
  using S = typename Config::SharedMemory;
  Layout all;
  for (int i = 0; i < S::kNumBarriers; ++i) {
    const auto e = S::entry(i);
    all.barriers.push_back({e.barrier.offset, e.arrivals, indexed(e.event, e.w, e.s)});
  }
  const auto add = [&](Buffer b, const std::string& s) {
    all.buffers.push_back({b.offset, b.bytes, s});
  };
  add(S::q(), "q");
  for (int slot = 0; slot < 2; ++slot) add(S::tile(slot), indexed("tile", slot));
  for (int w = 0; w < 2; ++w) {
    for (int s = 0; s < Config::kStages; ++s) add(S::slot(w, s), indexed("slot", w, s));
    if constexpr (!Config::kSplitRows) {
      add(S::p(w), indexed("p", w));
      add(S::row_max(w), indexed("row_max", w));
      for (int parity = 0; parity < 2; ++parity)
        add(S::row_sum(w, parity), indexed("row_sum", w, parity));
    }
  }
  return all;
}

std::string text(const std::vector<int>& counts) {
  std::string s;
  for (int c : counts) s += (s.empty() ? "" : " ") + std::to_string(c);
  return "{" + s + "}";
}

// Every list of 1..max_tiles tiles with 0..max_count key blocks each.
template <class Config>
void prove(int max_tiles, int max_count, Steps steps) {
  for (int tiles = 1; tiles <= max_tiles; ++tiles) {
    std::vector<int> counts(tiles, 0);
    for (bool more = true; more;) {
      const Verdict v = check(record<Config>(same_for_all(counts)), layout<Config>(), steps);
      ASSERT_EQ(v.error, "") << "key blocks " << text(counts) << last_events(v, 30);
      ASSERT_GT(v.states, 0);
      more = false;
      for (int& c : counts) {
        if (++c <= max_count) {
          more = true;
          break;
        }
        c = 0;
      }
    }
  }
}

// --- seeded faults. Two ways to break a protocol without a second copy of the roles: give one role
// another tile list than the rest, or edit its recorded script.
struct Fault {
  const char* what;
  std::vector<int> counts;  // key blocks of the tiles
  std::function<void(TileLists&)> tiles;
  std::function<void(std::vector<Script>&)> script;
};

using Events = std::vector<Event>;

// The n-th event of the kind, on the barrier if one is given.
Events::iterator find(Script& s, Event::Kind kind, int n, const Barrier* barrier = nullptr) {
  for (auto e = s.events.begin();; ++e) {
    if (e == s.events.end()) throw std::logic_error("no such event");
    if (e->kind == kind && (!barrier || e->barrier.offset == barrier->offset) && n-- == 0) return e;
  }
}
void drop(Script& s, Event::Kind kind, int n, Barrier b) { s.events.erase(find(s, kind, n, &b)); }
void flip(Script& s, int n, Barrier b) { find(s, Event::kWait, n, &b)->parity ^= 1; }

// Moves the n-th arrival at b to just before the wait for wgmma groups that it follows.
void arrive_early(Script& s, int n, Barrier b) {
  const auto at = find(s, Event::kArrive, n, &b);
  auto to = at;
  while (to->kind != Event::kWaitGroups) --to;
  std::rotate(to, at, at + 1);
}

// The roles disagree about the tiles.
std::vector<Fault> tile_faults() {
  using T = TileLists&;
  const auto skip = [](int role) { return [role](T t) { t[role].erase(t[role].begin() + 1); }; };
  const auto set = [](int role, int count) { return [=](T t) { t[role][0] = count; }; };
  return {
      {"consumer 1 skips an empty tile", {1, 0, 2}, skip(kConsumer1), nullptr},
      {"producer 0 skips an empty tile", {1, 0, 2}, skip(kProducer0), nullptr},
      {"producer 1 skips a tile of one block", {2, 1, 2}, skip(kProducer1), nullptr},
      {"consumer 0 runs one step more", {3}, set(kConsumer0, 5), nullptr},
      {"consumer 1 runs one step more, then a tile", {2, 2}, set(kConsumer1, 4), nullptr},
      {"producer 1 runs one step more", {2, 3}, set(kProducer1, 4), nullptr},
      {"consumer 1 runs one step less", {4, 1}, set(kConsumer1, 2), nullptr},
  };
}

// A buffer goes back too early, twice or not at all.
template <class Config>
std::vector<Fault> release_faults() {
  using S = typename Config::SharedMemory;
  using R = std::vector<Script>&;
  const auto keep = [](int role, int n, Barrier b) {
    return [=](R s) { drop(s[role], Event::kArrive, n, b); };
  };
  const auto early = [](int role, int n, Barrier b) {
    return [=](R s) { arrive_early(s[role], n, b); };
  };
  const auto twice = [](R s) {
    const Barrier b = S::p_free(1);
    const auto at = find(s[kConsumer0], Event::kArrive, 0, &b);
    s[kConsumer0].events.insert(at, Event(*at));
  };
  const auto free_q_at_once = [](R s) {
    const Barrier free = S::q_free(), ready = S::q_ready();
    for (int consumer : {kConsumer0, kConsumer1}) {
      const auto at = find(s[consumer], Event::kArrive, 0, &free);
      std::rotate(find(s[consumer], Event::kWait, 0, &ready) + 1, at, at + 1);
    }
  };
  return {
      {"consumer 0 keeps a slot", {3}, nullptr, keep(kConsumer0, 1, S::slot_free(0, 1))},
      {"consumer 1 keeps the other's P", {4}, nullptr, keep(kConsumer1, 0, S::p_free(0))},
      {"consumer 1 keeps Q", {1, 1}, nullptr, keep(kConsumer1, 0, S::q_free())},
      {"consumer 0 keeps a work tile", {1, 1}, nullptr, keep(kConsumer0, 0, S::tile_free(0))},
      {"producer 1 keeps a work tile", {1, 1}, nullptr, keep(kProducer1, 0, S::tile_free(0))},
      {"consumer 0 hands a slot back before its wgmma is done",
       {3},
       nullptr,
       early(kConsumer0, 1, S::slot_free(0, 1))},
      {"consumer 1 frees P before its wgmma is done",
       {4},
       nullptr,
       early(kConsumer1, 0, S::p_free(0))},
      {"consumer 0 arrives twice at p_free", {4}, nullptr, twice},
      // One of the two alone is harmless: the other's arrival comes after the first one's last P.
      {"both consumers free Q as soon as it is there", {2, 1}, nullptr, free_q_at_once},
  };
}

// A wait, a fence or a place is wrong.
template <class Config>
std::vector<Fault> order_faults() {
  using S = typename Config::SharedMemory;
  using R = std::vector<Script>&;
  constexpr int kLast = Config::kStages - 1;
  const auto wrong_parity = [](int role, int n, Barrier b) {
    return [=](R s) { flip(s[role], n, b); };
  };
  const auto closed = [](R s) {
    for (int slot = 0; slot <= kLast; ++slot) flip(s[kProducer1], 0, S::slot_free(1, slot));
  };
  const auto unasked = [](R s) { drop(s[kConsumer0], Event::kWait, 1, S::p_free(0)); };
  const auto overwritten = [](R s) { drop(s[kScheduler], Event::kWait, 1, S::tile_free(0)); };
  const auto too_soon = [](R s) { drop(s[kConsumer1], Event::kWait, 0, S::tile_ready(1)); };
  const auto unfenced = [](R s) {
    s[kConsumer1].events.erase(find(s[kConsumer1], Event::kFence, 0));
  };
  const auto one_place = [](R s) {
    for (Script& script : s) {
      for (Event& e : script.events) {
        for (Access& a : e.accesses) {
          for (int w = 0; w < 2; ++w) {
            if (a.offset == S::row_sum(w, 1).offset) a.offset = S::row_sum(w, 0).offset;
          }
        }
      }
    }
  };
  const auto v_swapped = [](R s) {
    for (int c = Config::kKChunks; c < Config::kKChunks + Config::kVChunks; ++c) {
      std::swap(find(s[kProducer1], Event::kCopy, c)->accesses[0].content,
                find(s[kProducer1], Event::kCopy, c + Config::kVChunks)->accesses[0].content);
    }
  };
  return {
      {"consumer 1 waits for P with the wrong parity",
       {4},
       nullptr,
       wrong_parity(kConsumer1, 1, S::p_ready(0))},
      {"producer 0 waits for a slot with the wrong parity",
       {3},
       nullptr,
       wrong_parity(kProducer0, 1, S::slot_free(0, kLast))},
      {"consumer 0 waits for a slot with the wrong parity",
       {3},
       nullptr,
       wrong_parity(kConsumer0, 2, S::slot_ready(0, kLast))},
      {"producer 1 starts with closed slots", {2}, nullptr, closed},
      {"consumer 0 writes P without waiting for p_free", {4}, nullptr, unasked},
      {"the scheduler overwrites a work tile that is in use", {1, 2, 1}, nullptr, overwritten},
      {"a consumer reads a work tile before it is there", {1, 1}, nullptr, too_soon},
      {"consumer 1 publishes P without a proxy fence", {4}, nullptr, unfenced},
      {"the row sums have one place only", {1, 1}, nullptr, one_place},
      {"producer 1 loads V of its own block before the other's", {2}, nullptr, v_swapped},
  };
}

// Faults of the kernels that split rows.
template <class Config>
std::vector<Fault> rows_faults() {
  using S = typename Config::SharedMemory;
  using R = std::vector<Script>&;
  const auto keep = [](int role, int n, Barrier b) {
    return [=](R s) { drop(s[role], Event::kArrive, n, b); };
  };
  const auto early = [](int role, int n, Barrier b) {
    return [=](R s) { arrive_early(s[role], n, b); };
  };
  const auto wrong_parity = [](int role, int n, Barrier b) {
    return [=](R s) { flip(s[role], n, b); };
  };
  const auto unasked = [](int role, int n, Barrier b) {
    return [=](R s) { drop(s[role], Event::kWait, n, b); };
  };
  const auto step_under_product = [](R s) {  // packs P while P V of the block before reads it
    const auto at = find(s[kConsumer0], Event::kWaitGroups, 2);
    s[kConsumer0].events.erase(at);
  };
  std::vector<Fault> all = {
      {"consumer 0 keeps a block of K", {3}, nullptr, keep(kConsumer0, 0, S::slot_free(0, 0))},
      {"consumer 1 keeps a block of V", {3}, nullptr, keep(kConsumer1, 0, S::slot_free(1, 0))},
      {"consumer 1 keeps Q", {1, 1}, nullptr, keep(kConsumer1, 0, S::q_free())},
      {"consumer 1 keeps Q of an empty tile", {0, 1}, nullptr, keep(kConsumer1, 0, S::q_free())},
      {"consumer 0 hands K back before its wgmma is done",
       {4},
       nullptr,
       early(kConsumer0, 0, S::slot_free(0, 1))},
      {"consumer 1 hands V back before its wgmma is done",
       {4},
       nullptr,
       early(kConsumer1, 0, S::slot_free(1, 0))},
      {"producer 0 waits for a slot with the wrong parity",
       {3},
       nullptr,
       wrong_parity(kProducer0, 1, S::slot_free(0, 0))},
      {"producer 1 overwrites V", {4}, nullptr, unasked(kProducer1, 1, S::slot_free(1, 0))},
      {"producer 0 overwrites Q", {2, 1}, nullptr, unasked(kProducer0, 1, S::q_free())},
      {"consumer 0 reads V before it is there",
       {2},
       nullptr,
       unasked(kConsumer0, 0, S::slot_ready(1, 0))},
      {"consumer 1 reads K with the wrong parity",
       {3},
       nullptr,
       wrong_parity(kConsumer1, 0, S::slot_ready(0, 1))},
      {"consumer 0 makes P while a product reads it", {2}, nullptr, step_under_product},
      {"the scheduler overwrites a work tile that is in use",
       {1, 2, 1},
       nullptr,
       unasked(kScheduler, 1, S::tile_free(0))},
  };
  if (Config::kTakeTurns) {
    all.push_back(
        {"consumer 0 does not end its turn", {2}, nullptr, keep(kConsumer0, 0, S::turn(1))});
    all.push_back(
        {"consumer 1 takes the first turn", {2}, nullptr, wrong_parity(kConsumer1, 0, S::turn(1))});
  }
  return all;
}

template <class Config>
std::vector<Fault> seeded_faults() {
  std::vector<Fault> all = tile_faults();
  if constexpr (Config::kSplitRows) {
    const auto more = rows_faults<Config>();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  } else {
    for (const auto& more : {release_faults<Config>(), order_faults<Config>()}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
}

template <class Config>
void find_faults(Steps steps) {
  for (const Fault& fault : seeded_faults<Config>()) {
    TileLists tiles = same_for_all(fault.counts);
    if (fault.tiles) fault.tiles(tiles);
    std::vector<Script> scripts = record<Config>(tiles);
    if (fault.script) fault.script(scripts);
    EXPECT_NE(check(scripts, layout<Config>(), steps).error, "")
        << "not found: " << fault.what << ", key blocks " << text(fault.counts);
  }
}

struct Mutants {
  int all = 0, found = 0, agree = 0;
};

// Every wait, arrival, fence and wgmma wait of the scripts dropped, doubled or flipped in turn.
template <class Config>
Mutants mutate(const std::vector<int>& counts, bool compare) {
  const std::vector<Script> scripts = record<Config>(same_for_all(counts));
  Mutants mutants;
  const auto judge = [&](const std::vector<Script>& mutant) {
    const bool error = !check(mutant, layout<Config>(), Steps::kReduced).error.empty();
    ++mutants.all;
    mutants.found += error;
    if (!compare) return;
    mutants.agree += error == !check(mutant, layout<Config>(), Steps::kEvery).error.empty();
  };
  for (size_t r = 0; r < scripts.size(); ++r) {
    for (size_t i = 0; i < scripts[r].events.size(); ++i) {
      const Event& e = scripts[r].events[i];
      const bool on_barrier = e.kind <= Event::kExpect;
      std::vector<Script> mutant = scripts;
      Events& events = mutant[r].events;
      if (on_barrier || e.kind == Event::kWaitGroups || e.kind == Event::kFence) {
        events.erase(events.begin() + i);
        judge(mutant);
        events.insert(events.begin() + i, e);
      }
      if (on_barrier) {
        events.insert(events.begin() + i, e);
        judge(mutant);
        events.erase(events.begin() + i);
      }
      if (e.kind == Event::kWait) {
        events[i].parity ^= 1;
        judge(mutant);
      }
    }
  }
  return mutants;
}

using Small = TestConfig<2, 2, 2>;

TEST(ForwardProtocol, reduced_steps_ring_of_2) {
  prove<TestConfig<2, 4, 2>>(2, 6, Steps::kReduced);
  prove<TestConfig<2, 4, 2>>(3, 3, Steps::kReduced);
}
TEST(ForwardProtocol, reduced_steps_ring_of_3) {
  prove<TestConfig<3, 6, 3>>(2, 6, Steps::kReduced);
}
// The rings that the kernels have.
TEST(ForwardProtocol, reduced_steps_head_dim_512) { prove<Real<512>>(2, 6, Steps::kReduced); }
TEST(ForwardProtocol, reduced_steps_head_dim_448) { prove<Real<448>>(2, 5, Steps::kReduced); }
TEST(ForwardProtocol, reduced_steps_head_dim_384) { prove<Real<384>>(2, 6, Steps::kReduced); }
TEST(ForwardProtocol, reduced_steps_head_dim_320) { prove<Real<320>>(2, 6, Steps::kReduced); }
TEST(ForwardProtocol, reduced_steps_rows) {
  prove<RowsAtWill>(2, 6, Steps::kReduced);
  prove<RowsAtWill>(3, 2, Steps::kReduced);
}
TEST(ForwardProtocol, reduced_steps_rows_in_turns) {
  prove<RowsInTurns>(2, 6, Steps::kReduced);
  prove<RowsInTurns>(3, 2, Steps::kReduced);
}
TEST(ForwardProtocol, every_step_rows) {
  prove<RowsAtWill>(1, 3, Steps::kEvery);
  prove<RowsInTurns>(1, 3, Steps::kEvery);
}
TEST(ForwardProtocol, every_step_ring_of_2) {
  prove<Small>(1, 3, Steps::kEvery);
  prove<Small>(2, 1, Steps::kEvery);
}
TEST(ForwardProtocol, every_step_ring_of_3) { prove<TestConfig<3, 3, 3>>(1, 1, Steps::kEvery); }

TEST(ForwardProtocol, seeded_faults_are_found) { find_faults<Real<512>>(Steps::kReduced); }
TEST(ForwardProtocol, seeded_faults_of_rows_are_found) {
  find_faults<RowsAtWill>(Steps::kReduced);
  find_faults<RowsInTurns>(Steps::kReduced);
}
TEST(ForwardProtocol, seeded_faults_are_found_in_every_step) { find_faults<Small>(Steps::kEvery); }

// Two mutants are equivalent: the ring's last chunk of a tile handed back early, or twice, cannot
// meet a load, since q_free comes between.
TEST(ForwardProtocol, mutants_are_found) {
  const Mutants m = mutate<Small>({3, 0, 2, 1}, false);
  EXPECT_GT(m.all, 500);
  EXPECT_LE(m.all - m.found, 2);
}
TEST(ForwardProtocol, both_kinds_of_steps_agree_on_mutants) {
  const Mutants m = mutate<TestConfig<1, 1, 1>>({1}, true);
  EXPECT_EQ(m.agree, m.all);
}

}  // namespace
}  // namespace ffpa::sm90
