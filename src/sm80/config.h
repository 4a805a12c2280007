// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// Tile shapes, and how a launch divides shared memory. All of it is decided on the host.
#pragma once

#include <cstdint>

#include "plan/host_device.h"

namespace ffpa::sm80 {

// Every kernel owns a block of rows X and streams blocks of rows Y and Z past it:
//   scores = X1 Y1^T (and dP = X2 Y2^T), W = f(scores), sums += W Z, sums [own rows][width].
//                 own rows   X1  X2   streamed   Y1  Y2   Z    W      sums
enum class Op : uint8_t {
  kForward,        // queries   q        keys     k        v    P      out
  kQueryGradient,  // queries   q  dout  keys     k   v    k    dS     dq
  kKeyGradient,    // keys      k   v    queries  q  dout  q    dS^T   dk
  kValueGradient,  // keys      k        queries  q       dout  P^T    dv
};
FFPA_HD constexpr bool owns_queries(Op op) {
  return op == Op::kForward || op == Op::kQueryGradient;
}
FFPA_HD constexpr bool needs_dp(Op op) {
  return op == Op::kQueryGradient || op == Op::kKeyGradient;
}

inline constexpr int kPanel = 64;  // columns of a panel: 128-byte rows
inline constexpr int kPanelRowBytes = 2 * kPanel;

struct TileShape {
  int max_width;    // columns of the sums
  int rows, block;  // own rows, streamed rows
  int warps;
  int score_warps_m, score_warps_n;  // how the warps divide scores [rows][block]
  int sum_warps_m, sum_warps_n;      // and the sums [rows][width]
  int blocks_per_sm;                 // register budget: 65,536 / (32 warps blocks_per_sm)
};

// The larger the width, the more of the register file the sums take: 64 x 640 floats are 160
// registers of each of 256 threads. A warp's part of a product decides what it reads from shared
// memory: 32 x 32 scores 1/16 byte, 64 x 64 sums 1/32 byte for each floating-point operation.
inline constexpr TileShape kTileShapes[] = {
    {128, 64, 64, 4, 2, 2, 2, 2, 2},   {256, 64, 64, 4, 2, 2, 1, 4, 2},
    {512, 64, 128, 8, 2, 4, 1, 8, 1},  {640, 64, 128, 8, 2, 4, 1, 8, 1},
    {1024, 32, 128, 8, 1, 8, 1, 8, 1},
};
inline constexpr int kTileShapeCount = sizeof(kTileShapes) / sizeof(kTileShapes[0]);

constexpr int tile_shape_of(int64_t width) {
  int i = 0;
  while (kTileShapes[i].max_width < width) ++i;
  return i;
}

// What a kernel template knows at compile time.
template <int kIndex>
struct Config {
  static constexpr TileShape kShape = kTileShapes[kIndex];
  static constexpr int kMaxWidth = kShape.max_width;
  static constexpr int kRows = kShape.rows, kBlock = kShape.block;
  static constexpr int kWarps = kShape.warps, kThreads = 32 * kWarps;
  static constexpr int kScoreWarpsM = kShape.score_warps_m, kScoreWarpsN = kShape.score_warps_n;
  static constexpr int kSumWarpsM = kShape.sum_warps_m, kSumWarpsN = kShape.sum_warps_n;
  static constexpr int kBlocksPerSm = kShape.blocks_per_sm;
  // Tiles of 16 rows (M) and of 8 columns (N) of one warp.
  static constexpr int kScoreM = kRows / kScoreWarpsM / 16, kScoreN = kBlock / kScoreWarpsN / 8;
  static constexpr int kSumM = kRows / kSumWarpsM / 16, kSumN = kMaxWidth / kSumWarpsN / 8;
  // Lanes that copy one row of Z together.
  static constexpr int kCopyLanes = kMaxWidth >= 256 ? 32 : kMaxWidth / 8;

  static_assert(kScoreWarpsM * kScoreWarpsN == kWarps && kSumWarpsM * kSumWarpsN == kWarps);
  static_assert(kScoreN % 2 == 0 && kSumN % 2 == 0, "ldmatrix brings two tiles of 8 columns");
  static_assert(kBlock % kPanel == 0, "W is stored in panels");
};

// How a launch divides its shared memory. Byte offsets from a 128-byte aligned start:
//   [own1 panels][own2 panels][W panels][row statistics][stage 0][stage 1]..[task]
struct MemoryPlan {
  int panels;       // panels of Y (and of X where it is streamed) in a chunk
  int z_rows;       // rows of Z in a chunk, a multiple of 16
  int z_row_bytes;  // a multiple of 128
  int score_chunks, dp_chunks;
  int stages;  // chunks in flight, and the one in use
  bool own1_resident, own2_resident;
  int own2_at, w_at, statistics_at, stages_at, task_at;
  int stage_bytes, bytes;
};

inline constexpr int kTaskBytes = 384;

struct Widths {
  int qk, v, sums;
};

// Floats of statistics. Forward: for own rows, maxima [score_warps_n] and sums [score_warps_n] of
// the score warps, running maxima [2] and factors. Backward: lse and delta of own rows, and of two
// blocks of streamed rows.
constexpr int statistics_floats(const TileShape& t) {
  const int forward = (2 * t.score_warps_n + 3) * t.rows, backward = 2 * t.rows + 4 * t.block;
  return forward > backward ? forward : backward;
}

FFPA_HD constexpr int panels_of(int width) { return (width + kPanel - 1) / kPanel; }

constexpr MemoryPlan lay_out(const TileShape& t, Op op, const Widths& w, int panels, int stages,
                             bool own1, bool own2) {
  MemoryPlan m{};
  m.panels = panels;
  m.stages = stages;
  m.score_chunks = (panels_of(w.qk) + panels - 1) / panels;
  m.dp_chunks = (panels_of(w.v) + panels - 1) / panels;
  m.own1_resident = own1;
  m.own2_resident = own2;
  int at = own1 ? panels_of(w.qk) * t.rows * kPanelRowBytes : 0;
  m.own2_at = at;
  at += own2 ? panels_of(w.v) * t.rows * kPanelRowBytes : 0;
  m.w_at = at;
  at += t.rows * t.block * 2;
  m.statistics_at = at;
  at += (statistics_floats(t) * 4 + 127) / 128 * 128;
  m.stages_at = at;
  const bool streams_own = !own1 || (needs_dp(op) && !own2);
  const int y_bytes = panels * (t.block + (streams_own ? t.rows : 0)) * kPanelRowBytes;
  m.z_row_bytes = panels_of(w.sums) * kPanelRowBytes;
  m.z_rows = y_bytes / m.z_row_bytes / 16 * 16;
  // At least three quarters of a chunk of Y, for as much work between two barriers.
  if (m.z_rows * m.z_row_bytes * 4 < 3 * y_bytes) m.z_rows += 16;
  if (m.z_rows > t.block) m.z_rows = t.block;
  const int z_bytes = m.z_rows * m.z_row_bytes;
  m.stage_bytes = y_bytes > z_bytes ? y_bytes : z_bytes;
  // The last pair of column tiles may read 16 bytes past the last row: into the task.
  m.task_at = at + stages * m.stage_bytes;
  m.bytes = m.task_at + kTaskBytes;
  return m;
}

// The first plan that fits into `limit` bytes. Chunks of two panels halve the barriers; own rows
// that stay are read once; three stages hide the latency of the L2 cache.
constexpr MemoryPlan plan_memory(const TileShape& t, Op op, const Widths& w, int limit) {
  const bool dp = needs_dp(op);
  const int most = w.qk > kPanel || (dp && w.v > kPanel) ? 2 : 1;
  struct Choice {
    int panels, stages;
    bool own1, own2;
  };
  const Choice choices[] = {
      {most, 4, true, dp},  {most, 3, true, dp},  {most, 4, true, false}, {most, 3, true, false},
      {1, 4, true, dp},     {1, 3, true, dp},     {1, 4, true, false},    {1, 3, true, false},
      {1, 4, false, false}, {1, 3, false, false}, {1, 2, true, dp},       {1, 2, true, false},
      {1, 2, false, false},
  };
  MemoryPlan m{};
  for (const Choice& c : choices) {
    m = lay_out(t, op, w, c.panels, c.stages, c.own1, c.own2);
    if (m.bytes <= limit) return m;
  }
  m.bytes = -1;
  return m;
}

// 99 KB is what compute capability 8.6, 8.9 and 12.0 give a block.
constexpr bool every_plan_fits(int limit) {
  for (int i = 0; i < kTileShapeCount; ++i) {
    for (Op op : {Op::kForward, Op::kQueryGradient, Op::kKeyGradient, Op::kValueGradient}) {
      const Widths w{1024, 1024, kTileShapes[i].max_width};
      if (plan_memory(kTileShapes[i], op, w, limit).bytes < 0) return false;
    }
  }
  return true;
}
static_assert(every_plan_fits(99 * 1024));

}  // namespace ffpa::sm80
