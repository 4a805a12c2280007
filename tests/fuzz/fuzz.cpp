// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// On the CPU the oracle is the float64 one, with its low-precision peer. On a GPU, where cases are
// larger, it is the CPU backend in float32, and the peer is the CPU backend in the case's dtype.
// Outputs are poisoned and guarded as in all tests.
#include "fuzz/fuzz.h"

#include <gtest/gtest-spi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>

#include "fuzz/fuzz_case.h"
#include "support/compare.h"
#ifdef FFPA_WITH_CUDA
#include "gpu/device_call.h"
#endif

namespace ffpa::test {
namespace {

using Clock = std::chrono::steady_clock;
using reference::Result;

bool has_gpu() {
#ifdef FFPA_WITH_CUDA
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
#else
  return false;
#endif
}

FuzzLimits limits(bool gpu) {
  return gpu ? FuzzLimits{false, 2e10, 3'000'000} : FuzzLimits{true, 1e9, 600'000};
}

#ifdef FFPA_WITH_CUDA
// The same values in float32, on the CPU.
Result run_wide(const TestCall& call) {
  Case c = call.test_case;
  c.dtype = DType::kFloat32;
  c.layout = Layout::kContiguous;
  TestCall wide(c);
  const auto copy = [](const Tensor& to, const Tensor& from) {
    if (to.defined()) reference::write(to, reference::read(from));
  };
  copy(wide.inputs.q, call.inputs.q);
  copy(wide.inputs.k, call.inputs.k);
  copy(wide.inputs.v, call.inputs.v);
  copy(wide.inputs.sink, call.inputs.sink);
  copy(wide.saved.dout, call.saved.dout);
  copy(wide.saved.dlse, call.saved.dlse);
  return wide.run();
}

Result run_on_gpu(TestCall& call, cudaStream_t stream) {
  DeviceCall device(call, stream);
  for (const Status& status : {device.forward(), device.backward()}) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return device.results();
}

void check_on_gpu(const Case& c) {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Case on_cpu = c;
  on_cpu.options.num_threads = 1;
  TestCall call(on_cpu), again(on_cpu), peer(on_cpu);
  const Result got = run_on_gpu(call, stream);
  expect_same_bits(got, run_on_gpu(again, stream));
  expect_close(got, {run_wide(call), peer.run()}, c.dtype);
  check_cuda(cudaStreamDestroy(stream));
}
#endif

// What is wrong with a case's results; empty if nothing is.
std::string findings(const Case& c, bool gpu) {
  testing::TestPartResultArray parts;
  {
    using Reporter = testing::ScopedFakeTestPartResultReporter;
    const Reporter reporter(Reporter::INTERCEPT_ONLY_CURRENT_THREAD, &parts);
    try {
#ifdef FFPA_WITH_CUDA
      if (gpu) {
        check_on_gpu(c);
      } else {
        check(c);
      }
#else
      static_cast<void>(gpu);
      check(c);
#endif
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
  std::string text;
  for (int i = 0; i < parts.size(); ++i) {
    text += std::string(parts.GetTestPartResult(i).summary()) + "\n";
  }
  return text;
}

struct Options {
  double seconds = 60;
  int64_t seed = 1, cases = INT64_MAX;
  int jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
};

std::string parse(const std::vector<std::string>& arguments, Options* o) {
  for (size_t i = 0; i < arguments.size(); i += 2) {
    const std::string& name = arguments[i];
    if (i + 1 == arguments.size()) return name + ": expected a number, got nothing";
    char* end = nullptr;
    const double value = std::strtod(arguments[i + 1].c_str(), &end);
    if (*end != 0 || !(value >= 0)) {
      return name + ": expected a number from 0, got '" + arguments[i + 1] + "'";
    }
    if (name == "--seconds")
      o->seconds = value;
    else if (name == "--seed")
      o->seed = static_cast<int64_t>(value);
    else if (name == "--cases")
      o->cases = static_cast<int64_t>(value);
    else if (name == "--jobs")
      o->jobs = std::max(1, static_cast<int>(value));
    else
      return "expected --seconds, --seed, --cases or --jobs, got '" + name + "'";
  }
  return "";
}

class Run {
 public:
  Run(const Options& options, bool gpu)
      : options_(options),
        gpu_(gpu),
        end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(options.seconds))) {}

  int64_t all() {
    std::vector<std::thread> threads;
    for (int i = 1; i < options_.jobs; ++i) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& t : threads) t.join();
    return done_;
  }
  bool found() const { return found_; }

 private:
  void work() {
    while (!found_ && Clock::now() < end_) {
      const int64_t n = next_++;
      if (n >= options_.cases) return;
      const Case c = draw_case(static_cast<uint64_t>(options_.seed + n), limits(gpu_));
      const std::string text = findings(c, gpu_);
      const std::lock_guard lock(mutex_);
      ++done_;
      if (isatty(STDOUT_FILENO)) std::printf("\r%lld cases", static_cast<long long>(done_));
      std::fflush(stdout);
      if (text.empty()) continue;
      found_ = true;
      std::printf("\n%s\nffpa repro '%s'\n", text.c_str(), to_line(c).c_str());
    }
  }

  const Options options_;
  const bool gpu_;
  const Clock::time_point end_;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> found_{false};
  std::mutex mutex_;
  int64_t done_ = 0;
};

}  // namespace

int fuzz(const std::vector<std::string>& arguments) {
  Options options;
  if (const std::string error = parse(arguments, &options); !error.empty()) {
    return std::fprintf(stderr, "ffpa fuzz: %s\n", error.c_str()), 2;
  }
  const bool gpu = has_gpu();
  Run run(options, gpu);
  const int64_t cases = run.all();
  std::printf("\n%lld cases on the %s from seed %lld, %s\n", static_cast<long long>(cases),
              gpu ? "GPU" : "CPU", static_cast<long long>(options.seed),
              run.found() ? "a finding" : "no finding");
  return run.found() ? 1 : 0;
}

int repro(const std::vector<std::string>& arguments) {
  if (arguments.size() != 1) {
    return std::fprintf(stderr, "ffpa repro: expected one line that `ffpa fuzz` printed\n"), 2;
  }
  try {
    const Case c = from_line(arguments[0]);
    std::printf("%s\n", describe(c).c_str());
    const std::string text = findings(c, has_gpu());
    std::printf("%s\n", text.empty() ? "no finding" : text.c_str());
    return text.empty() ? 0 : 1;
  } catch (const std::invalid_argument& e) {
    return std::fprintf(stderr, "ffpa repro: %s\n", e.what()), 2;
  }
}

}  // namespace ffpa::test
