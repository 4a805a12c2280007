// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The Hopper path: wgmma and TMA.
#pragma once

#include "core/problem.h"

namespace ffpa::sm90 {

size_t forward_workspace_bytes(const Problem& p);
Status forward(const Problem& p, Workspace workspace, void* stream);
std::string describe_forward(const Problem& p);

}  // namespace ffpa::sm90
