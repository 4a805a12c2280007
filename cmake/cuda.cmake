# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
#
# FFPA_CUDA = AUTO (on where nvcc is found), ON or OFF -> FFPA_WITH_CUDA.
include(CheckLanguage)

set(FFPA_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO, ON or OFF")
set_property(CACHE FFPA_CUDA PROPERTY STRINGS AUTO ON OFF)

set(FFPA_WITH_CUDA OFF)
if(FFPA_CUDA STREQUAL "AUTO")
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(FFPA_WITH_CUDA ON)
  else()
    message(STATUS "ffpa: no nvcc found: the CUDA kernels are skipped")
  endif()
elseif(FFPA_CUDA)
  set(FFPA_WITH_CUDA ON)
endif()

if(FFPA_WITH_CUDA)
  # Each kernel folder names its own architectures.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES OFF)
  endif()
  enable_language(CUDA)
  # CMake before 3.26 does not know that nvcc has C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  find_package(CUDAToolkit REQUIRED)
endif()
