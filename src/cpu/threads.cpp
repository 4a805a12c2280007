// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#include "cpu/threads.h"

#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace ffpa::cpu {

int thread_count(const Problem& p) {
  if (p.num_threads > 0) return p.num_threads;
  return std::max(1u, std::thread::hardware_concurrency());
}

void run_tasks(int threads, int64_t count, void* context,
               void (*task)(void* context, int64_t i, int slot)) {
  const int workers = static_cast<int>(std::min<int64_t>(threads, count));
  std::atomic<int64_t> next{0};
  const auto work = [&](int slot) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      task(context, i, slot);
    }
  };
  if (workers <= 1) return work(0);
  // One TBB task per slot. All of them take from one queue, so the order of the starts is the
  // caller's, and it does not matter how many threads TBB has to give.
  tbb::task_arena arena(std::min(workers, tbb::info::default_concurrency()));
  arena.execute([&] { tbb::parallel_for(0, workers, work, tbb::simple_partitioner()); });
}

}  // namespace ffpa::cpu
