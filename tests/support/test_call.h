// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The memory and arguments of a case, ready for the public API.
#pragma once

#include <deque>
#include <random>

#include "ffpa/attention.h"
#include "reference/attention.h"
#include "support/case.h"
#include "support/memory.h"

namespace ffpa::test {

// Inputs are random, and NaN where they must not be read. Outputs and workspaces are NaN.
class TestCall {
 public:
  explicit TestCall(const Case& c);
  TestCall(const TestCall&) = delete;

  // Workspaces of exactly the size asked for, then the call.
  Status run_forward(void* stream = nullptr);
  Status run_backward(void* stream = nullptr);
  // Forward, backward, and the results. Fails the test on any error, on memory damage and on
  // changed inputs.
  reference::Result run();

  reference::Call reference_call() const;
  // True iff outputs, gradients and workspaces hold nothing but poison.
  bool outputs_untouched() const;
  bool gradients_untouched() const;

  const Case test_case;
  // Free to change before a run.
  AttentionInputs inputs;
  AttentionOptions options;
  ForwardOutputs outputs;
  BackwardInputs saved;  // out and lse: those of `outputs`
  BackwardOutputs gradients;
  // Given instead of a workspace made for the call.
  bool own_workspace = false;
  Workspace workspace;

 private:
  using Shape = std::vector<int64_t>;

  Tensor new_tensor(std::deque<Block>* in, DType dtype, const Shape& shape,
                    const Arrangement& arrangement = {});
  Arrangement arrangement_of_rows() const;
  Shape rows_shape(bool query, int64_t heads, int64_t columns) const;
  bool fuses() const;
  void fused_slices(std::deque<Block>* in, Tensor* q, Tensor* k, Tensor* v);
  void make_rows();
  void make_sequences();
  void make_mask();
  void make_options();
  void make_gradients();
  void fill(const Tensor& t, double size);
  void poison_unused_rows(const Tensor& t, bool query) const;
  void expect_memory_intact() const;

  std::mt19937_64 random_;
  std::deque<Block> input_blocks_, output_blocks_, gradient_blocks_;
};

// Builds the case and runs it.
reference::Result run(const Case& c);

}  // namespace ffpa::test
