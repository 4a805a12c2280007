// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Every check of every argument. Nothing is written; data is read only of CPU cu_seqlens and
// seqused.
#pragma once

#include "core/problem.h"

namespace ffpa {

// Inputs and options only: what a plan, `explain` and the workspace functions need.
Status check_inputs(const AttentionInputs& inputs, const AttentionOptions& options, Problem* p);
Status check_forward(const AttentionInputs& inputs, const AttentionOptions& options,
                     const ForwardOutputs& outputs, Problem* p);
Status check_backward(const AttentionInputs& inputs, const AttentionOptions& options,
                      const BackwardInputs& saved, const BackwardOutputs& gradients, Problem* p);

// True iff some byte belongs to both, or if that cannot be ruled out in a bounded search.
bool tensors_overlap(const Tensor& a, const Tensor& b);

}  // namespace ffpa
