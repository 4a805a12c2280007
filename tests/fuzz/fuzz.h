// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// `ffpa fuzz` and `ffpa repro`: random packs, forward and backward, against a better reference.
#pragma once

#include <string>
#include <vector>

namespace ffpa::test {

// --seconds N (60), --seed S (1), --cases N (no limit), --jobs N. Exit code: 0 if nothing was
// found, 1 after a finding, whose line for `repro` is printed, 2 for arguments it does not know.
int fuzz(const std::vector<std::string>& arguments);
// One case from its line.
int repro(const std::vector<std::string>& arguments);

}  // namespace ffpa::test
