// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Threads come from the OpenMP runtime that the process already uses (torch brings one), so that
// there is one pool: idle OpenMP threads spin for milliseconds and would take the cores away from
// threads of our own. Where there is none, threads are started for the call.
#include "cpu/threads.h"

#include <dlfcn.h>
#include <pthread.h>

#include <thread>

namespace ffpa::cpu {
namespace {

using Work = void (*)(void*);
using OpenMpParallel = void (*)(Work, void*, unsigned workers, unsigned flags);

std::atomic<bool> forked{false};

// The entry point of a parallel region of GCC's and LLVM's runtimes. After a fork their threads
// are gone, and to wait for them would be for ever.
OpenMpParallel openmp_of_process() {
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
  if (forked.load()) return nullptr;
  return reinterpret_cast<OpenMpParallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
}

struct Call {
  Work work;
  void* context;
};

void* run_call(void* call) {
  static_cast<Call*>(call)->work(static_cast<Call*>(call)->context);
  return nullptr;
}

void run_on_new_threads(int workers, Call call) {
  pthread_t threads[kMaxWorkers];
  int started = 0;
  // No more threads to be had: those that there are do the work.
  while (started < workers - 1 &&
         pthread_create(&threads[started], nullptr, run_call, &call) == 0) {
    ++started;
  }
  run_call(&call);
  for (int i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
}

}  // namespace

int worker_count(const Problem& p, double flops) {
  constexpr double kFlopsPerThread = 1e7;
  const int hardware = static_cast<int>(std::thread::hardware_concurrency());
  const int wanted = p.num_threads > 0 ? p.num_threads : (hardware > 0 ? hardware : 1);
  const int allowed = std::min(wanted, kMaxWorkers);
  const double useful = 1 + flops / kFlopsPerThread;
  return useful < allowed ? static_cast<int>(useful) : allowed;
}

void run_on_threads(int workers, void (*work)(void*), void* context) {
  if (workers <= 1) return work(context);
  if (const OpenMpParallel parallel = openmp_of_process()) {
    return parallel(work, context, static_cast<unsigned>(workers), 0);
  }
  run_on_new_threads(workers, {work, context});
}

}  // namespace ffpa::cpu
