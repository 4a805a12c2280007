// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
//
// The scheduler's step: the CTA's next work tile.
#pragma once

#include "sm90/forward/machine.cuh"

namespace ffpa::sm90 {

// Writes field after field: the warp has few registers.
template <class Config>
FFPA_ROLE void ForwardMachine<Config>::write_work_tile(uint32_t to, WorkItem item) {
  const WorkOrder& o = params.order;
  int32_t kv_head = item.stream, q_tile = item.rank, sequence;
  if (params.list) {
    sequence = params.list[item.rank].sequence;
    q_tile = params.list[item.rank].tile;
  } else {
    sequence = item.stream / o.heads_kv;
    kv_head = item.stream - sequence * o.heads_kv;
    if (o.descending) q_tile = o.tiles - 1 - item.rank;
  }
  const int32_t head = kv_head * o.group + item.head;
  const int32_t batch = params.list ? 0 : sequence;  // a pack has one batch
  const SequenceRows s = params.sequences.at(sequence);
  const int32_t q_row = q_tile * Config::kBlockM;
  const auto put = [&](size_t at, auto x) { ptx::store_shared(to + uint32_t(at), x); };
  put(offsetof(WorkTile, sequence), sequence);
  put(offsetof(WorkTile, head), head);
  put(offsetof(WorkTile, q_row), q_row);
  put(offsetof(WorkTile, rows_q), s.rows_q);
  put(offsetof(WorkTile, len_q), s.len_q);
  put(offsetof(WorkTile, len_k), s.len_k);
  put(offsetof(WorkTile, out_offset),
      batch * params.out_batch + head * params.out_head + s.q_begin * params.out_row);
  put(offsetof(WorkTile, lse_offset),
      batch * params.lse_batch + head * params.lse_head + s.q_begin * params.lse_row);

  const Visibility v{s.len_q, s.len_k, params.window_left, params.window_right};
  const TileRange keys = key_tiles(v, q_row, Config::kBlockM, Config::kBlockN);
  const bool back = walks_back(o, item.position, gridDim.x);
  const int32_t first_key = (back ? keys.end - 1 : keys.begin) * Config::kBlockN;
  put(offsetof(WorkTile, blocks.count), keys.count());
  put(offsetof(WorkTile, blocks.full_begin),
      back ? keys.end - keys.full_end : keys.full_begin - keys.begin);
  put(offsetof(WorkTile, blocks.full_end),
      back ? keys.end - keys.full_begin : keys.full_end - keys.begin);
  put(offsetof(WorkTile, first_key), first_key);
  put(offsetof(WorkTile, key_step), back ? -Config::kBlockN : Config::kBlockN);
  put(offsetof(WorkTile, k_x), params.k_units.extent - s.len_k + first_key);
  put(offsetof(WorkTile, last_x), params.k_units.extent - 1);
  put(offsetof(WorkTile, k_origin), params.k_units.origin(batch, kv_head, s.k_begin + s.len_k));
  put(offsetof(WorkTile, v_origin), params.v_units.origin(batch, kv_head, s.k_begin + s.len_k));
  // Without keys nothing reads Q, and it may lie outside the map: then the tensor's first row.
  const bool real = keys.count() > 0;
  put(offsetof(WorkTile, q_x), params.q_units.extent - (real ? s.len_q - q_row : 1));
  put(offsetof(WorkTile, q_origin), real ? params.q_units.origin(batch, head, s.q_begin + s.len_q)
                                         : params.q_units.origin(0, 0, 1));
}

// CTAs take items in order, whenever they have room: a fixed share for each leaves some of them
// with 1.5x the work of others (causal, two heads a section).
template <class Config>
FFPA_ROLE bool ForwardMachine<Config>::write_tile(Buffer to, uint32_t n) {
  const uint32_t tiles = params.list ? *params.list_count : params.order.tiles;
  const uint32_t items = params.order.items(tiles);
  uint32_t index = blockIdx.x;
  if (n > 0) {
    index = items;
    if (params.next_item && threadIdx.x % 32 == 0) {
      index = gridDim.x + atomicAdd(params.next_item, 1);
    }
    index = __shfl_sync(~0u, index, 0);
  }
  const bool more = index < items;
  if (threadIdx.x % 32 == 0) {
    if (more) {
      write_work_tile(smem + to.offset, work_item(params.order, tiles, index));
    } else {
      ptx::store_shared(smem + to.offset + offsetof(WorkTile, blocks.count), -1);
    }
  }
  return more;
}

}  // namespace ffpa::sm90
