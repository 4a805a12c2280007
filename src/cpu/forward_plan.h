// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// How a forward call is cut into tasks. A task: some query heads of one key/value head, some
// queries. The tasks of a unit (batch, key/value head) read the same keys and values; where memory
// allows, these are packed once, in rounds of as many units as fit.
#pragma once

#include "core/problem.h"
#include "cpu/matmul.h"

namespace ffpa::cpu {

// Rows (queries x heads) of a task. The more, the fewer times keys and values are packed or read.
inline constexpr int kMaxRows = 256;
// Also the order in which sums are formed, so it depends on nothing.
inline constexpr int kKeysPerTile = 256;

// Bytes of one key tile, packed: its keys, and behind them its values.
struct PanelSizes {
  int64_t keys, values;

  explicit PanelSizes(const Problem& p);
  int64_t tile() const { return keys + values; }
};

struct ForwardPlan {
  int heads_per_task, queries_per_task;
  int max_keys;  // of a tile of this problem
  int workers;
  int64_t max_tasks;
  int64_t shared_tiles;  // key tiles packed for all tasks of a round; 0: each task packs its own

  int max_rows() const { return heads_per_task * queries_per_task; }
};

struct ForwardTask {
  int64_t batch;
  int32_t head;  // the first of heads_per_task
  int32_t query;
  int32_t key_tiles;
  const char* panels;  // its unit's key tiles; null: not packed
};

struct PackTask {
  int64_t batch, kv_head;
  int32_t key_tile;
  char* panel;
};

ForwardPlan make_forward_plan(const Problem& p);

// Units are numbered batch by batch. The end of the round that starts with unit `first`.
int64_t round_end(const Problem& p, const ForwardPlan& plan, int64_t first);

// The tasks of units [first, end); each returns their number. `panels`: of the round, or null.
int64_t list_pack_tasks(const Problem& p, int64_t first, int64_t end, char* panels,
                        PackTask* tasks);
int64_t list_tasks(const Problem& p, const ForwardPlan& plan, int64_t first, int64_t end,
                   const char* panels, ForwardTask* tasks);

}  // namespace ffpa::cpu
