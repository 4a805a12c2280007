// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The portable GPU path: every option and head dim on every GPU from compute capability 8.0.
#pragma once

#include "core/problem.h"

namespace ffpa::sm80 {

size_t forward_workspace_bytes(const Problem& p);
size_t backward_workspace_bytes(const Problem& p);
Status forward(const Problem& p, Workspace workspace, void* stream);
Status backward(const Problem& p, Workspace workspace, void* stream);
std::string describe_forward(const Problem& p);
std::string describe_backward(const Problem& p);

}  // namespace ffpa::sm80
