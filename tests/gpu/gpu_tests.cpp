// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Tests that need an NVIDIA GPU. Each case runs in a child process with a time limit, so that a
// hang or a lost context costs one case.
//   ffpa_gpu_tests [--filter TEXT] [--jobs N] [--limit SECONDS] | --list | --case NUMBER
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "gpu/hopper_cases.h"

namespace ffpa::test {
namespace {

struct Options {
  std::string filter;
  int jobs = 12;
  double limit = 60;
};

int run_case(const GpuCase& c) {
  std::string text;
  try {
    text = c.run();
  } catch (const std::exception& e) {
    text = std::string("\n    ") + e.what();
  }
  if (!text.empty()) std::printf("FAILED %s%s\n", c.name.c_str(), text.substr(0, 1200).c_str());
  std::fflush(stdout);
  return text.empty() ? 0 : 1;
}

// Runs this program again for one case. Returns false if it failed.
bool run_child(const char* program, size_t number, const GpuCase& c, double limit) {
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    execl(program, program, "--case", std::to_string(number).c_str(), nullptr);
    _exit(127);
  }
  const auto start = std::chrono::steady_clock::now();
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    const std::chrono::duration<double> used = std::chrono::steady_clock::now() - start;
    if (used.count() > limit) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      std::printf("FAILED %s\n    did not end within %.0f s\n", c.name.c_str(), limit);
      return false;
    }
    usleep(5000);
  }
  if (WIFSIGNALED(status)) {
    std::printf("FAILED %s\n    ended by signal %d\n", c.name.c_str(), WTERMSIG(status));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int run_all(const std::vector<GpuCase>& cases, const Options& o) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<size_t> next = 0, run = 0, failed = 0;
  const auto work = [&] {
    for (size_t i = next++; i < cases.size(); i = next++) {
      if (cases[i].name.find(o.filter) == std::string::npos) continue;
      ++run;
      if (!run_child("/proc/self/exe", i, cases[i], o.limit)) ++failed;
      std::fflush(stdout);
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < o.jobs; ++t) threads.emplace_back(work);
  for (std::thread& t : threads) t.join();
  const std::chrono::duration<double> used = std::chrono::steady_clock::now() - start;
  std::printf("%zu cases, %zu failed, %.1f s\n", run.load(), failed.load(), used.count());
  return failed == 0 && run > 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  const std::vector<GpuCase> cases = hopper_cases();
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--list") {
      for (size_t n = 0; n < cases.size(); ++n) std::printf("%zu %s\n", n, cases[n].name.c_str());
      return 0;
    }
    if (i + 1 == argc) return 2;
    const char* value = argv[++i];
    if (a == "--case") return run_case(cases.at(std::strtoul(value, nullptr, 10)));
    if (a == "--filter") o.filter = value;
    if (a == "--jobs") o.jobs = std::max(1, std::atoi(value));
    if (a == "--limit") o.limit = std::atof(value);
  }
  return run_all(cases, o);
}

}  // namespace
}  // namespace ffpa::test

int main(int argc, char** argv) { return ffpa::test::main(argc, argv); }
