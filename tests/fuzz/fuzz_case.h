// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Random cases, and one line of text that brings a case back.
#pragma once

#include "support/case.h"

namespace ffpa::test {

// A ragged pack of 1..40 sequences of 0..600 rows with random heads, head dims and flags, shrunk
// until forward and backward take at most `most_flops` and all tensors `most_elements`.
struct FuzzLimits {
  bool float32;  // may be drawn
  double most_flops;
  int64_t most_elements;
};
Case draw_case(uint64_t seed, const FuzzLimits& limits);

// "seed=7 dtype=bfloat16 q=12,600,0 ..."; what is at its default is left out.
std::string to_line(const Case& c);
// Throws std::invalid_argument that names the part that it does not understand.
Case from_line(const std::string& line);

}  // namespace ffpa::test
