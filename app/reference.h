// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Attention and its gradients in float64, for the demo's errors: plain loops over one head of one
// sequence, several heads at once.
#pragma once

#include <functional>
#include <vector>

#include "arguments.h"

namespace ffpa::app {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

// What a step reads and computes. [tokens, heads, head_dim], values already rounded to the dtype.
struct Step {
  Floats q, k, v, dout;
};
struct Result {
  Doubles out, dq, dk, dv;
};

// All heads of the KV heads in `kv_heads`; the rest stays 0. `progress` is called with the share
// done.
Result reference(const Shape& shape, const Step& step, const std::vector<int64_t>& kv_heads,
                 const std::function<void(double)>& progress);

}  // namespace ffpa::app
