// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include "core/problem.h"

namespace ffpa::sm90 {

size_t forward_workspace_bytes(const Problem& p);
Status forward(const Problem& p, Workspace workspace, void* stream);
std::string describe_forward(const Problem& p);
// Why the layout of a call's tensors is not served in place; empty if it is.
std::string refuse_forward(const Problem& p);

}  // namespace ffpa::sm90
