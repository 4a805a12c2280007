// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Every check of every argument. Nothing is written; data is read only of CPU cu_seqlens and
// seqused.
#pragma once

#include "core/problem.h"

namespace ffpa {

// What plans, `explain` and the workspace functions need: everything but data, so that pointers
// may be null.
Status check_inputs(const AttentionInputs& inputs, const AttentionOptions& options, Problem* p);
Status check_backward_plan(const AttentionInputs& inputs, const AttentionOptions& options,
                           const BackwardOutputs& gradients, Problem* p);
// The whole call, but for the size of the workspace.
Status check_forward(const AttentionInputs& inputs, const AttentionOptions& options,
                     const ForwardOutputs& outputs, Workspace workspace, Problem* p);
Status check_backward(const AttentionInputs& inputs, const AttentionOptions& options,
                      const BackwardInputs& saved, const BackwardOutputs& gradients,
                      Workspace workspace, Problem* p);

// True iff some byte belongs to both, or if that cannot be ruled out in a bounded search.
bool tensors_overlap(const Tensor& a, const Tensor& b);

}  // namespace ffpa
