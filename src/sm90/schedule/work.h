// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// What the CTAs of a launch work on, and in what order. Pure functions, tested on the host.
#pragma once

#include <cstdint>

#include "plan/visibility.h"

namespace ffpa::sm90 {

// One sequence: where its rows begin in the packed tensors (dense: 0), how many there are, and how
// many of them take part.
struct SequenceRows {
  int32_t q_begin, k_begin;
  int32_t rows_q, rows_k;
  int32_t len_q, len_k;
};

// Where the sequences lie. Pointers are read on the device only; whatever they hold, no row outside
// the tensors is named.
struct Sequences {
  const int32_t *cu_q, *cu_k;      // null: dense
  const int32_t *used_q, *used_k;  // null: all rows
  int32_t batch;
  int32_t rows_q, rows_k;  // dense: of each sequence; packed: of the whole pack

  // Packed: sequence `batch` has the rows behind the last offsets, none of them in use.
  FFPA_HD SequenceRows at(int32_t b) const {
    SequenceRows s{0, 0, rows_q, rows_k, rows_q, rows_k};
    if (cu_q) {
      s.q_begin = clamp(cu_q[b], 0, rows_q);
      s.rows_q = s.len_q =
          (b == batch ? rows_q : clamp(cu_q[b + 1], s.q_begin, rows_q)) - s.q_begin;
      s.k_begin = clamp(cu_k[b], 0, rows_k);
      s.rows_k = s.len_k =
          (b == batch ? rows_k : clamp(cu_k[b + 1], s.k_begin, rows_k)) - s.k_begin;
      if (b == batch) s.len_q = s.len_k = 0;
    }
    if (b < batch) {
      if (used_q) s.len_q = clamp(used_q[b], 0, s.rows_q);
      if (used_k) s.len_k = clamp(used_k[b], 0, s.rows_k);
    }
    return s;
  }
};

// A query tile of a sequence, for all heads.
struct SequenceTile {
  int32_t sequence, tile;
};

// Most tiles of `block` query rows that a pack can have, the rows behind the last offset included.
FFPA_HD constexpr int64_t max_sequence_tiles(int64_t total_q, int64_t batch, int32_t block) {
  return (total_q + block - 1) / block + batch + 1;
}

// The order of the work items of a launch: a section is a run of KV heads ("streams"; dense: of all
// sequences, [batch, heads_kv]) whose K and V fit L2 together. Inside a section tiles come longest
// first, and the query heads that share K and V next to each other.
struct WorkOrder {
  int32_t heads_kv, group;
  int32_t streams;          // packed: heads_kv, dense: batch * heads_kv
  int32_t section_streams;  // of a section; the last one may have fewer
  int32_t tiles;            // of each stream; packed: known on the device only
  bool descending;          // dense: the last query tile is the longest

  FFPA_HD constexpr uint32_t items(uint32_t stream_tiles) const {
    return stream_tiles * streams * group;
  }
};

struct WorkItem {
  int32_t stream, rank;  // rank: position of the tile among those of the stream
  int32_t head;          // inside the group
  uint32_t position;     // inside the section
};

FFPA_HD constexpr WorkItem work_item(const WorkOrder& o, uint32_t tiles, uint32_t index) {
  const uint32_t in_section = tiles * o.section_streams * o.group;
  const uint32_t section = index / in_section, first = section * o.section_streams;
  const uint32_t left = uint32_t(o.streams) - first;
  const uint32_t streams = left < uint32_t(o.section_streams) ? left : uint32_t(o.section_streams);
  const uint32_t rest = index - section * in_section, width = streams * o.group;
  const uint32_t rank = rest / width, lane = rest - rank * width;
  const uint32_t stream = lane / o.group;
  return {int32_t(first + stream), int32_t(rank), int32_t(lane - stream * o.group), rest};
}

// Whether a tile walks its keys from the last to the first. Of a section, longest first, the CTA
// that gets done with its first tile soonest takes the longest one that is left: the times of a
// CTA's two tiles add up to the same for all. So if the second tile goes backwards, all CTAs that
// are at their second tile read the same keys at the same time, and those at their first one too.
// Not for packs: their lists vary inside a length class, and results must not.
FFPA_HD constexpr bool walks_back(const WorkOrder& o, uint32_t position, uint32_t ctas) {
  return o.descending && position / ctas % 2 == 1;
}

}  // namespace ffpa::sm90
