// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/problem.h"

namespace ffpa::cpu {

inline constexpr int kMaxWorkers = 256;

// Threads that a call of about `flops` operations is worth: one more per 10 million, since to
// start a thread costs about as much as to compute them.
int worker_count(const Problem& p, double flops);

// work(context) on up to `workers` threads, the caller's among them; returns when all have.
void run_on_threads(int workers, void (*work)(void*), void* context);

// run(worker, task) for every task. Workers take the tasks in ascending order, so a task may wait
// for earlier ones, never for later ones.
template <class F>
void run_tasks(int workers, int64_t tasks, const F& run) {
  struct Queue {
    const F& run;
    const int64_t tasks;
    std::atomic<int64_t> next{0};
    std::atomic<int> workers{0};
  } queue{run, tasks};
  const auto work = [](void* context) {
    Queue& q = *static_cast<Queue*>(context);
    const int worker = q.workers.fetch_add(1, std::memory_order_relaxed);
    for (int64_t task; (task = q.next.fetch_add(1, std::memory_order_relaxed)) < q.tasks;) {
      q.run(worker, task);
    }
  };
  const int64_t useful = std::clamp<int64_t>(tasks, 1, workers);
  run_on_threads(static_cast<int>(useful), work, &queue);
}

}  // namespace ffpa::cpu
