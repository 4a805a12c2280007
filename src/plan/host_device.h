// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

// Functions that host code, device code and tests share.
#ifdef __CUDACC__
#define FFPA_HD __host__ __device__ __forceinline__
#else
#define FFPA_HD inline
#endif
