// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The Hopper path: wgmma and TMA.
#pragma once

#include "core/problem.h"

namespace ffpa::sm90 {

struct Device;
// An error once a kernel of this process has given up a wait: what it waited for.
Status check_waits(const Device& device);

size_t forward_workspace_bytes(const Problem& p);
Status forward(const Problem& p, Workspace workspace, void* stream);
std::string describe_forward(const Problem& p);

size_t backward_workspace_bytes(const Problem& p);
Status backward(const Problem& p, Workspace workspace, void* stream);
std::string describe_backward(const Problem& p);
// Why it does not serve the call, besides what the capability table says; empty if it does.
std::string refuse_forward(const Problem& p);
std::string refuse_backward(const Problem& p);

}  // namespace ffpa::sm90
