// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The protocols of the backward kernels: the very role source that the GPU runs, in every
// interleaving. Small rings: both CTAs of a pair, whole. The real rings: each CTA whole, with what
// its peer does across the pair; the eight whole roles have 3 million states at two blocks already.
// Mutants of the scripts, which must be found, test the checker.
#include <gtest/gtest.h>

#include "protocol/backward_machine.h"
#include "protocol/checker.h"

namespace ffpa::sm90 {
namespace {

using Scripts = std::vector<Script>;

// The dkdv kernel with another ring.
template <int kStages_, int kKPass_, int kVChunks_>
struct TestConfig {
  using SharedMemory = DkdvSharedMemory<TestConfig>;
  static constexpr int kStages = kStages_, kKPass = kKPass_, kVChunks = kVChunks_;
  static constexpr uint32_t kSlotBytes = 16384, kScoreBytes = 16384, kValueBytes = 16384;
};
template <int kHeadDim>
using Real = DkdvConfig<kHeadDim, DType::kBFloat16>;

template <class Config, int kCta>
void record_cta(int count, Scripts* scripts) {
  using Machine = DkdvMachine<Config, kCta>;
  const std::string cta = "CTA " + std::to_string(kCta) + " ";
  for (int w = 0; w < 2; ++w) {
    Machine m(cta + "consumer " + std::to_string(w), w, 4, count);
    DkdvConsumer<Machine, kCta>(m, w).run();
    scripts->push_back(m.script);
  }
  for (int w = 0; w < 2; ++w) {
    Machine m(cta + "producer " + std::to_string(w), w, 1, count);
    produce_dkdv(m, w);
    scripts->push_back(m.script);
  }
}

template <class Config>
Scripts record_pair(int count) {
  Scripts scripts;
  record_cta<Config, 0>(count, &scripts);
  record_cta<Config, 1>(count, &scripts);
  return scripts;
}

// Whether the other CTA of the pair takes part in the event.
template <class Config>
bool crosses(const Event& e) {
  using S = typename Config::SharedMemory;
  const auto is = [](uint32_t place, uint32_t offset) { return place % kCtaStride == offset; };
  for (int w = 0; w < 2; ++w) {
    if (e.kind <= Event::kExpect && (is(e.barrier.offset, S::message_ready(w).offset) ||
                                     is(e.barrier.offset, S::message_free(w).offset))) {
      return true;
    }
    for (const Access& a : e.accesses) {
      if (is(a.offset, S::received(w).offset)) return true;
    }
  }
  return false;
}

// CTA kCta, and its peer without all that does not cross the pair: it may then do the rest at any
// time, so whatever the whole peer does is among what this one does.
template <class Config, int kCta>
Scripts record_with_peer(int count) {
  Scripts scripts, peer;
  record_cta<Config, kCta>(count, &scripts);
  record_cta<Config, 1 - kCta>(count, &peer);
  for (Script& s : peer) {
    std::erase_if(s.events, [](const Event& e) { return !crosses<Config>(e); });
    if (!s.events.empty()) scripts.push_back(s);
  }
  return scripts;
}

template <class Config>
Layout pair_layout() {
  using S = typename Config::SharedMemory;
  Layout all;
  for (uint32_t cta = 0; cta < 2; ++cta) {
    const uint32_t base = cta * kCtaStride;
    const std::string prefix = "CTA " + std::to_string(cta) + " ";
    for (int i = 0; i < S::kNumBarriers; ++i) {
      const BarrierEntry e = S::entry(i);
      all.barriers.push_back(
          {e.barrier.offset + base, e.arrivals, prefix + indexed(e.event, e.w, e.s)});
    }
    const auto add = [&](Buffer b, const std::string& s) {
      all.buffers.push_back({b.offset + base, b.bytes, prefix + s});
    };
    add(S::x(), "x");
    for (int w = 0; w < 2; ++w) {
      for (int s = 0; s < Config::kStages; ++s) add(S::slot(w, s), indexed("slot", w, s));
      add(S::p(w), indexed("p", w, -1));
      add(S::received(w), indexed("received", w, -1));
    }
  }
  return all;
}

template <class Config>
void prove_pair(int most, Steps steps) {
  for (int count = 0; count <= most; ++count) {
    const Verdict v = check(record_pair<Config>(count), pair_layout<Config>(), steps);
    ASSERT_EQ(v.error, "") << count << " blocks" << last_events(v, 40);
  }
}

template <class Config, int kCta>
void prove_with_peer(int most) {
  for (int count = 0; count <= most; ++count) {
    const Verdict v =
        check(record_with_peer<Config, kCta>(count), pair_layout<Config>(), Steps::kReduced);
    ASSERT_EQ(v.error, "") << "CTA " << kCta << ", " << count << " blocks" << last_events(v, 40);
  }
}

using DqReal = DqConfig<512, DType::kBFloat16>;

Scripts record_dq(int count, Range half0, Range half1) {
  using Machine = DqMachine<DqReal>;
  Scripts scripts;
  for (int w = 0; w < 2; ++w) {
    Machine m("consumer " + std::to_string(w), 4, count, half0, half1);
    consume_dq(m, w);
    scripts.push_back(m.script);
  }
  Machine m("producer", 1, count, half0, half1);
  produce_dq(m);
  scripts.push_back(m.script);
  return scripts;
}

Layout dq_layout() {
  using S = DqReal::SharedMemory;
  Layout all;
  for (int i = 0; i < S::kNumBarriers; ++i) {
    const BarrierEntry e = S::entry(i);
    all.barriers.push_back({e.barrier.offset, e.arrivals, indexed(e.event, e.w, e.s)});
  }
  for (int s = 0; s < DqReal::kStages; ++s) {
    for (int w = 0; w < 2; ++w) {
      all.buffers.push_back({S::ds(s, w).offset, S::ds(s, w).bytes, indexed("ds", s, w)});
    }
    all.buffers.push_back({S::keys(s).offset, S::keys(s).bytes, indexed("keys", s, -1)});
  }
  return all;
}

struct Mutants {
  int all = 0, found = 0;
  std::string missed;
};

// Every wait, arrival, fence and wait for wgmma or stores dropped, every arrival doubled, every
// parity flipped in turn.
Mutants mutate(const Scripts& scripts, const Layout& layout) {
  Mutants mutants;
  EXPECT_EQ(check(scripts, layout, Steps::kReduced).error, "") << "all mutants would be found";
  const auto judge = [&](const Scripts& mutant, const char* how, size_t r, size_t i) {
    const bool found = !check(mutant, layout, Steps::kReduced).error.empty();
    ++mutants.all;
    mutants.found += found;
    if (!found) {
      mutants.missed += std::string("\n  ") + how + " " + scripts[r].role + " event " +
                        std::to_string(i) + " kind " + std::to_string(scripts[r].events[i].kind);
    }
  };
  for (size_t r = 0; r < scripts.size(); ++r) {
    for (size_t i = 0; i < scripts[r].events.size(); ++i) {
      const Event& e = scripts[r].events[i];
      const bool on_barrier = e.kind <= Event::kExpect;
      Scripts mutant = scripts;
      std::vector<Event>& events = mutant[r].events;
      if (on_barrier || e.kind == Event::kWaitGroups || e.kind == Event::kFence) {
        events.erase(events.begin() + i);
        judge(mutant, "dropped", r, i);
        events.insert(events.begin() + i, e);
      }
      if (e.kind == Event::kArrive) {
        events.insert(events.begin() + i, e);
        judge(mutant, "doubled", r, i);
        events.erase(events.begin() + i);
      }
      if (e.kind == Event::kWait) {
        events[i].parity ^= 1;
        judge(mutant, "flipped", r, i);
      }
    }
  }
  return mutants;
}

TEST(DkdvProtocol, real_rings_cta_0) {
  prove_with_peer<Real<512>, 0>(6);
  prove_with_peer<Real<384>, 0>(6);
}
TEST(DkdvProtocol, real_rings_cta_1) {
  prove_with_peer<Real<512>, 1>(6);
  prove_with_peer<Real<384>, 1>(6);
}
TEST(DkdvProtocol, whole_pairs) {
  prove_pair<TestConfig<2, 2, 1>>(4, Steps::kReduced);
  prove_pair<TestConfig<3, 2, 2>>(2, Steps::kReduced);
}
TEST(DkdvProtocol, every_step) { prove_pair<TestConfig<1, 1, 1>>(1, Steps::kEvery); }
TEST(DkdvProtocol, mutants_are_found) {
  using Config = TestConfig<2, 2, 1>;
  for (const Scripts& scripts : {record_with_peer<Config, 0>(4), record_with_peer<Config, 1>(4)}) {
    const Mutants m = mutate(scripts, pair_layout<Config>());
    EXPECT_GT(m.all, 100);
    EXPECT_LE(m.all - m.found, 8) << m.missed;
  }
}

TEST(DqProtocol, all_ranges_of_both_halves) {
  for (int count = 0; count <= 6; ++count) {
    for (int begin = 0; begin <= count; ++begin) {
      for (int end = begin; end <= count; ++end) {
        const Range all{0, count}, part{begin, end};
        for (const auto& [half0, half1] : {std::pair{all, part}, {part, all}}) {
          const Steps steps = count <= 2 ? Steps::kEvery : Steps::kReduced;
          const Verdict v = check(record_dq(count, half0, half1), dq_layout(), steps);
          ASSERT_EQ(v.error, "") << count << " steps, " << begin << ".." << end
                                 << last_events(v, 30);
        }
      }
    }
  }
}
TEST(DqProtocol, mutants_are_found) {
  const Mutants m = mutate(record_dq(12, {0, 12}, {1, 11}), dq_layout());
  EXPECT_GT(m.all, 100);
  // No copy follows into the slots of the last round: early hand-backs are the same there.
  EXPECT_LE(m.all - m.found, 2 * DqReal::kStages + 2) << m.missed;
}

}  // namespace
}  // namespace ffpa::sm90
