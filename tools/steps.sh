# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
#
# Sourced by ./run: what each command does.

# build FOLDER PRESET OPTION...: configures and builds build/FOLDER.
build() {
  local folder=$1 preset=$2
  shift 2
  quietly "configuring build/$folder" "$VENV/bin/cmake" --preset "$preset" -B "build/$folder" \
    "-DCMAKE_MAKE_PROGRAM=$VENV/bin/ninja" "-DPython_EXECUTABLE=$VENV/bin/python" "$@"
  quietly "building build/$folder" "$VENV/bin/cmake" --build "build/$folder"
}

run_demo() {
  need_packages "${BUILD_PACKAGES[@]}"
  need_venv build.txt
  # Without a GPU the CUDA kernels would take minutes to build and not run.
  CUDA_OPTIONS=(-DFFPA_CUDA=OFF)
  if has_gpu; then need_cuda; fi
  build demo release -DFFPA_BUILD_TESTS=OFF "${CUDA_OPTIONS[@]}" -DFFPA_CUDA_ARCHITECTURES=native
  build/demo/app/ffpa demo "$@"
}

cpp_files() { git ls-files '*.h' '*.cpp' '*.cu' '*.cuh'; }

check_format() {
  quietly "checking the format of C++ files" "$VENV/bin/clang-format" --dry-run -Werror $(cpp_files)
  quietly "checking the Python files" "$VENV/bin/ruff" check .
  quietly "checking the format of Python files" "$VENV/bin/ruff" format --check .
}

run_format() {
  need_packages "${BUILD_PACKAGES[@]}"
  need_venv test.txt
  "$VENV/bin/clang-format" -i $(cpp_files)
  "$VENV/bin/ruff" format .
  "$VENV/bin/ruff" check --fix .
}

# cpp_tests FOLDER PRESET OPTION...: builds and runs the C++ tests; reports in build/FOLDER.xml.
cpp_tests() {
  local folder=$1
  rm -f "build/$folder.xml"
  build "$@"
  say "C++ tests of build/$folder"
  "$VENV/bin/ctest" --test-dir "build/$folder" --output-on-failure --timeout 1500 \
    --output-junit "$PWD/build/$folder.xml"
}

installed_package_test() {
  local prefix=$PWD/build/prefix
  rm -rf "$prefix"
  quietly "installing to build/prefix" "$VENV/bin/cmake" --install build/release --prefix "$prefix"
  quietly "configuring examples/cpp against it" "$VENV/bin/cmake" -S examples/cpp -B build/example \
    -G Ninja "-DCMAKE_MAKE_PROGRAM=$VENV/bin/ninja" "-DCMAKE_PREFIX_PATH=$prefix"
  quietly "building examples/cpp" "$VENV/bin/cmake" --build build/example
  say "running examples/cpp"
  build/example/example
}

# make_wheel FOLDER OPTION...: the wheel, in FOLDER.
make_wheel() {
  local folder=$1
  shift
  rm -rf "$folder"
  quietly "building the wheel" env "PATH=$VENV/bin:$PATH" "$VENV/bin/pip" wheel -q \
    --no-build-isolation --no-deps --wheel-dir "$folder" "$@" .
}

run_wheel() {
  need_packages "${BUILD_PACKAGES[@]}"
  need_venv test.txt
  need_cuda
  make_wheel dist "${CUDA_OPTIONS[@]/#-D/--config-settings=cmake.define.}"
  ls -l dist/*.whl
}

# Builds the wheel with the CPU backend only and installs it: what tests and benchmarks here use.
install_cpu_wheel() {
  make_wheel build/cpu-wheel --config-settings=cmake.define.FFPA_CUDA=OFF
  quietly "installing the wheel into .venv" "$VENV/bin/pip" install -q --no-deps --force-reinstall \
    build/cpu-wheel/*.whl
}

# run_versions [PYTHON:TORCH ...]: the Python tests of one wheel under several versions of both.
run_versions() {
  need_packages "${BUILD_PACKAGES[@]}"
  need_venv test.txt
  make_wheel build/cpu-wheel --config-settings=cmake.define.FFPA_CUDA=OFF
  tests/python/versions.sh build/cpu-wheel/*.whl "$@"
}

# Reports in build/python.xml.
python_tests() {
  local report=$PWD/build/python.xml
  rm -f "$report"
  install_cpu_wheel
  say "Python tests"
  (cd tests/python && "$VENV/bin/python" -m pytest -q -p no:cacheprovider "--junitxml=$report")
}

run_test() {
  need_packages "${TEST_PACKAGES[@]}"
  need_venv test.txt
  need_cuda
  check_format
  # A failed test stops nothing: the last line counts it. Anything else that fails ends the run.
  local good=true
  # One architecture: every CUDA source is compiled, the product's list would take an hour.
  cpp_tests release release -DFFPA_WERROR=ON "${CUDA_OPTIONS[@]}" \
    -DFFPA_CUDA_ARCHITECTURES=90-real || good=false
  installed_package_test
  cpp_tests asan asan -DFFPA_WERROR=ON || good=false
  python_tests || good=false
  say "C++ test programs and Python tests together:"
  "$VENV/bin/python" tools/summarize_tests.py build/{release,asan,python}.xml && $good
}

run_sanitize() {
  need_packages "${TEST_PACKAGES[@]}"
  need_venv build.txt
  cpp_tests asan asan
  cpp_tests tsan tsan
}

run_bench() {
  need_packages "${BUILD_PACKAGES[@]}"
  need_venv test.txt
  install_cpu_wheel
  "$VENV/bin/python" bench/cpu_attention.py "$@"
}

# gpu_python_tests LIBRARY: the Python tests of the GPU with this library and this folder's package.
gpu_python_tests() {
  say "Python tests on the GPU"
  (cd tests/python && env "FFPA_LIBRARY=$1" "PYTHONPATH=$PWD/../../python" \
    "$VENV/bin/python" -m pytest -q -p no:cacheprovider test_gpu.py)
}

# run_gpu_test CTEST_OPTION...
run_gpu_test() {
  has_gpu || fail "gpu-test: no NVIDIA GPU found"
  need_packages "${TEST_PACKAGES[@]}"
  need_venv test.txt
  need_cuda
  build gpu cuda "${CUDA_OPTIONS[@]}" -DFFPA_CUDA_ARCHITECTURES=native -DFFPA_BUILD_PYTHON=ON
  local good=true
  "$VENV/bin/ctest" --test-dir build/gpu --output-on-failure -L gpu "$@" || good=false
  gpu_python_tests "$PWD/build/gpu/python/libffpa_attn.so" || good=false
  $good
}
