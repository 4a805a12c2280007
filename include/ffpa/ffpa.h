// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 the ffpa authors
#pragma once

#include "ffpa/attention.h"
#include "ffpa/status.h"
#include "ffpa/tensor.h"
#include "ffpa/version.h"
