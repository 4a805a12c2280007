// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

namespace ffpa::test {

// Each prints its faults and returns their number.
int check_offsets_past_2_31();
int check_graph_replay();

}  // namespace ffpa::test
