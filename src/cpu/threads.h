// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

#include "core/problem.h"

namespace ffpa::cpu {

// Threads that a call of about `flops` operations is worth: one more per 10 million, since to
// start a thread costs about as much as to compute them.
inline int worker_count(const Problem& p, double flops) {
  constexpr double kFlopsPerThread = 1e7;
  const int hardware = static_cast<int>(std::thread::hardware_concurrency());
  const int allowed = p.num_threads > 0 ? p.num_threads : (hardware > 0 ? hardware : 1);
  const double useful = 1 + flops / kFlopsPerThread;
  return useful < allowed ? static_cast<int>(useful) : allowed;
}

// run(worker, task) for every task. Workers take the tasks in ascending order, so a task may wait
// for earlier ones, never for later ones.
template <class F>
void run_tasks(int workers, int64_t tasks, const F& run) {
  std::atomic<int64_t> next{0};
  const auto work = [&](int worker) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      run(worker, task);
    }
  };
  std::vector<std::thread> threads;
  if (workers > tasks) workers = tasks > 1 ? static_cast<int>(tasks) : 1;
  threads.reserve(workers - 1);
  try {
    for (int worker = 1; worker < workers; ++worker) threads.emplace_back(work, worker);
  } catch (const std::system_error&) {
    // No more threads to be had: those that there are do the work.
  }
  work(0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ffpa::cpu
