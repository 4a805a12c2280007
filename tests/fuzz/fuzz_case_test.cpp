// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "fuzz/fuzz_case.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace ffpa::test {
namespace {

constexpr FuzzLimits kLimits{true, 1e9, 600'000};

TEST(Fuzz, a_line_brings_its_case_back) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const Case c = draw_case(seed, kLimits);
    EXPECT_EQ(describe(c), describe(from_line(to_line(c)))) << to_line(c);
    EXPECT_EQ(c.extra_max_seqlen, from_line(to_line(c)).extra_max_seqlen);
  }
}

TEST(Fuzz, lines_that_it_did_not_write_are_refused) {
  for (const char* line : {"", "q", "q=1,x", "heads=3 q=1", "q=1 dtype=float64", "q=1 layout=9"}) {
    EXPECT_THROW(from_line(line), std::invalid_argument) << line;
  }
}

}  // namespace
}  // namespace ffpa::test
