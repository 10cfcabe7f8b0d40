include(Precompile)
include(PtxMachine)

# ob_library(NAME SRCS a.cc b.cc DEPS x y): a static library; includes are written from the repository's root.
function(ob_library name)
  cmake_parse_arguments(A "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SRCS})
  ob_precompile(${name})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_features(${name} PUBLIC cxx_std_20)  # our headers ask it of a program that links us
  target_link_libraries(${name} PUBLIC ${A_DEPS} PRIVATE ${A_PRIVATE_DEPS})
endfunction()

# ob_binary(NAME SRCS main.cc DEPS x y): a program in build/bin.
function(ob_binary name)
  cmake_parse_arguments(A "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  ob_precompile(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${A_DEPS})
endfunction()

# ob_optimize_for_tests(TARGET): an interpreter of which tests run billions of steps. With -O3 its loops over lanes and
# elements become vectors, which -O2 of GCC 12 hardly makes.
function(ob_optimize_for_tests target)
  if(NOT OUTBOARD_SANITIZE)
    target_compile_options(${target} PRIVATE -O3)
  endif()
endfunction()

# ob_test_on_opencl(NAME TEST ARGS...): one more ctest entry of a test program, on the machine's OpenCL device; skipped
# where it has none.
function(ob_test_on_opencl name test)
  add_test(NAME ${name} COMMAND on_opencl $<TARGET_FILE:${test}> ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS opencl TIMEOUT 300 SKIP_RETURN_CODE 77
    ENVIRONMENT_MODIFICATION "OUTBOARD_KERNEL_STORE=set:;OUTBOARD_IDLE_SEARCH=set:0")
endfunction()

# ob_test_on_processor(NAME TEST PROCESSOR ARGS...): the same with kernels for another x86-64 processor, by LLVM's name of it
# (tests/compiler/harness.cc).
function(ob_test_on_processor name test processor)
  add_test(NAME ${name} COMMAND ${test} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS compiler TIMEOUT 300
    ENVIRONMENT_MODIFICATION "OUTBOARD_KERNEL_STORE=set:;OUTBOARD_IDLE_SEARCH=set:0;OUTBOARD_PROCESSOR=set:${processor}")
endfunction()

# ob_weigh_tests(): at the end of the folder each of its tests counts as what it uses of a core, in quarters: 4, but 1 for
# those that are said to wait (WAITS) and what the list below says. scripts/test gives ctest four for each core, so that
# tests which mostly wait run beside others (docs/decisions/135-tests-by-what-they-use.md).
function(ob_weigh_tests)
  get_property(is_planned DIRECTORY PROPERTY ob_tests_are_weighed)
  if(NOT is_planned)
    set_property(DIRECTORY PROPERTY ob_tests_are_weighed ON)
    cmake_language(DEFER CALL ob_weigh_tests_now)
  endif()
endfunction()
# The longest, by seconds on two cores: ctest begins with them, and with those that wait, which run beside others; so the
# end of a run does not wait for one of them. On a clean clone ctest knows no times of its own.
set(ob_long_tests
  hostile.hostile_test 110 e2e.gpu_training_test 60 e2e.lost_test 50 nodes.node_enrolment_test 50 e2e.tls_connections_test 50 e2e.survive_test 45
  compiler.mma_test 45 compiler.packed_attention_test 40 compiler.ptx_programs_test 40 e2e.gpu_failures_test 40 e2e.gpu_survive_test 30 e2e.groups_test 40 compiler.mma_f32_test 40
  compiler.hopper_kernel_test 35 compiler.attention_cases_test 35 compiler.random_graph_test 33 compiler.codegen_test 33 compiler.thread_plan_test 33
  compiler.ptx_test 32 compiler.random_graph_test.opencl 31
  client.operator_table_test_on_the_compiler_forward 30 client.entry_points_test 28 e2e.doors_test 28 e2e.bad_network_test 27
  sim.session_sim_test 26 e2e.processes_test 25)
# Quarters of a core, where a test uses neither nearly all of one nor less than a quarter: processor time by seconds
# on two cores, rounded up; more where processes are killed, whose time nobody counts. A test of Python (3) waits for its
# server, and its server for it.
set(ob_weights
  hostile.hostile_test 2 nodes.node_enrolment_test 2 nodes.node_driver_test 2 cli.store_test 2 cli.sweep_test 2
  e2e.bad_network_test 2 e2e.cut_connections_test 2 e2e.doors_test 2 e2e.gpu_failures_test 2 e2e.gpu_sessions_test 2 e2e.gpu_survive_test 2
  e2e.gpu_training_test 3 e2e.group_losses_test 2 e2e.groups_test 2 e2e.lost_client_test 2 e2e.lost_test 2
  e2e.processes_test 2 e2e.round_trips_test 2 e2e.several_workers_test 3 sim.session_sim_test 3 packages.installed 3
  bench.gpu_matmul_figures_test 2 bench.gpu_device_figures_test 2)
set(ob_numbers_of_tests ob_weights ob_long_tests)
set(ob_properties_of_tests PROCESSORS COST)
function(ob_weigh_tests_now)
  ob_label_ptx_machine()
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    foreach(numbers property IN ZIP_LISTS ob_numbers_of_tests ob_properties_of_tests)
      list(FIND ${numbers} ${test} at)
      if(at GREATER_EQUAL 0)
        math(EXPR at "${at} + 1")
        list(GET ${numbers} ${at} number)
        set_tests_properties(${test} PROPERTIES ${property} ${number})
      endif()
    endforeach()
    get_test_property(${test} PROCESSORS processors)
    if(NOT processors)
      set_tests_properties(${test} PROPERTIES PROCESSORS 4)
    endif()
  endforeach()
endfunction()

# ob_test(NAME LAYER compiler SRCS a_test.cc DEPS x [FAST] [TSAN] [WAITS] [NEAR]): one GoogleTest program, one ctest entry,
# labelled by its layer. WAITS: it uses less than a quarter of a core, for it waits for timeouts and the like. FAST entries are what `scripts/test --fast` runs, TSAN ones what `scripts/test --tsan` builds
# and runs: tests of code that is free of gRPC, whose threads ThreadSanitizer understands.
function(ob_test name)
  cmake_parse_arguments(A "FAST;TSAN;WAITS;NEAR" "LAYER;TIMEOUT" "SRCS;DEPS;ARGS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  ob_precompile(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${A_DEPS} ob_test_paths GTest::gtest_main GTest::gmock)
  # A quarter of a build is own sources of these tests, and -O1 compiles them in a quarter less; what they call is in libraries.
  # Not those that compute much themselves.
  if(NOT OUTBOARD_SANITIZE AND NOT A_LAYER MATCHES "^(compiler|gpu|sim)$" AND NOT name MATCHES "_ulp_test$")
    target_compile_options(${name} PRIVATE -O1)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${A_LAYER}.${name} COMMAND ${name} ${A_ARGS})
  set_target_properties(${name} PROPERTIES ob_entry ${A_LAYER}.${name})
  ob_weigh_tests()
  if(A_WAITS)
    set_tests_properties(${A_LAYER}.${name} PROPERTIES PROCESSORS 1)
  endif()
  set(labels ${A_LAYER})
  if(A_FAST)
    list(APPEND labels fast)
  endif()
  if(A_TSAN)
    list(APPEND labels tsan)
    if(NOT TARGET tsan_tests)
      add_custom_target(tsan_tests)
    endif()
    add_dependencies(tsan_tests ${name})
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  # Modifications, since a test's own ENVIRONMENT may come later; programs that the test starts inherit them.
  # What was measured on this machine, and whatever is measured while it idles, is no test's business.
  set(environment "OUTBOARD_KERNEL_STORE=set:" "OUTBOARD_IDLE_SEARCH=set:0"
    "OUTBOARD_BLOB_CACHE=set:${PROJECT_BINARY_DIR}/tests/blobs" "OUTBOARD_FILE_INDEX=set:" "CLOUD_HEADS=set:0")
  if(OUTBOARD_SANITIZE)
    math(EXPR A_TIMEOUT "5 * ${A_TIMEOUT}")
    list(APPEND environment
      "LSAN_OPTIONS=set:suppressions=${PROJECT_SOURCE_DIR}/tests/support/leaks.supp:print_suppressions=0")
  endif()
  set_tests_properties(${A_LAYER}.${name} PROPERTIES
    LABELS "${labels}" TIMEOUT ${A_TIMEOUT} ENVIRONMENT_MODIFICATION "${environment}")
  # The worker's tests are run a second time on the test device, which shows what counts on a device that works
  # at once on memory that the host can address (runtime/far).
  # NEAR: it makes no device, and starts no executor that would.
  if(A_NEAR)
    foreach(source ${A_SRCS})
      file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/${source} makes REGEX "tests/support/device.h|OUTBOARD_DEVICE")
      if(makes)
        message(FATAL_ERROR "${name} is said to be NEAR, but ${source} names the device of the tests")
      endif()
    endforeach()
  elseif(A_LAYER STREQUAL worker)
    add_test(NAME ${A_LAYER}.${name}.far COMMAND ${name} ${A_ARGS})
    set_tests_properties(${A_LAYER}.${name}.far PROPERTIES
      LABELS far TIMEOUT ${A_TIMEOUT} ENVIRONMENT_MODIFICATION "${environment};OUTBOARD_DEVICE=set:far")
  endif()
  if(name MATCHES "^(device_test|engine_test|group_kernels_test|repeat_test|snapshot_test)$")
    ob_test_on_cuda(${A_LAYER}.${name}.cuda ${name} ${A_ARGS})
  endif()
  # Where memory, shared memory and registers are full of what others have left, nobody may notice.
  if(name STREQUAL engine_test)
    ob_test_on_cuda(${A_LAYER}.${name}.cuda_leftovers ${name} ${A_ARGS})
    set_property(TEST ${A_LAYER}.${name}.cuda_leftovers APPEND PROPERTY
      ENVIRONMENT_MODIFICATION OUTBOARD_FAKE_CUDA_AA=set:1 OUTBOARD_FAKE_CUDA_LEFTOVERS=set:1)
  endif()
  # What runs graphs runs them on OpenCL too (PoCL, which scripts/setup installs).
  if(name MATCHES "^(engine_test|repeat_test|supervisor_test|canary_test)$")
    ob_test_on_opencl(${A_LAYER}.${name}.opencl ${name} ${A_ARGS})
  endif()
endfunction()
