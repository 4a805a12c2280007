// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace ffpa::cpu {

// Threads that a call may use: its num_threads, or one per core.
int thread_count(const Problem& p);

// Calls `task(context, i, slot)` for every i in [0, count), in rising order of their start, from at
// most `threads` threads. Calls with the same slot (< threads) never overlap.
void run_tasks(int threads, int64_t count, void* context,
               void (*task)(void* context, int64_t i, int slot));

template <class Task>
void run_tasks(int threads, int64_t count, Task task) {
  run_tasks(threads, count, &task,
            [](void* context, int64_t i, int slot) { (*static_cast<Task*>(context))(i, slot); });
}

}  // namespace ffpa::cpu
