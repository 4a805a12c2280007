// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ffpa/ffpa.h"

namespace ffpa::app {

// One packed call, as the command line describes it.
struct Shape {
  DType dtype = DType::kBFloat16;
  int64_t heads_q = 32, heads_kv = 4, head_dim = 512;
  bool causal = true;
  std::vector<int32_t> lengths;  // of the sequences; queries and keys alike

  int64_t tokens() const;
  int64_t max_seqlen() const;
  std::vector<int32_t> cu_seqlens() const;
  // Pairs of a query and a visible key, over all sequences, of one head.
  double visible_pairs() const;
  std::string text() const;
};

// --heads 32/4 --head-dim 512 --seqlens 3x2048 (or 100,200,300) --dtype bf16|fp16|fp32 --full.
// Returns an error text, or "". Without --seqlens, lengths stay empty.
std::string parse(const std::vector<std::string>& arguments, Shape* shape);

}  // namespace ffpa::app
