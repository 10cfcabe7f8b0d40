# Tests that run kernels on the PTX machine (tests/gpu/ptx), in the program itself or behind the tests' own CUDA driver,
# have the label ptx_machine. tests/bench/gpu_test_figures.cc counts them by it, and tests/layers/ptx_machine_labels_test.cc
# asks that every program that is linked with the machine has it.

# ob_test_on_cuda(NAME TEST ARGS...): likewise, on the CUDA device, whose driver is the tests' own (tests/gpu/driver).
function(ob_test_on_cuda name test)
  add_dependencies(${test} fake_cuda)
  add_test(NAME ${name} COMMAND ${test} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS "cuda;ptx_machine" TIMEOUT 600 ENVIRONMENT_MODIFICATION
    "OUTBOARD_KERNEL_STORE=set:;OUTBOARD_IDLE_SEARCH=set:0;OUTBOARD_DEVICE=set:cuda;OUTBOARD_CUDA_DRIVER=set:${PROJECT_BINARY_DIR}/tests/fake_cuda/libcuda.so.1")
endfunction()

# ob_runs_on_ptx_machine(VARIABLE SOURCES...): whether one of the sources runs kernels there: it, what it includes of the
# tests, or the .cc beside such a header names the machine or the driver. kernel_check.h is left out: it goes there where
# OUTBOARD_CHECK_PTX is set.
function(ob_runs_on_ptx_machine variable)
  set(open ${ARGN})
  set(seen ${PROJECT_SOURCE_DIR}/tests/compiler/kernel_check.h ${PROJECT_SOURCE_DIR}/tests/support/paths.h)
  set(runs FALSE)
  while(open AND NOT runs)
    list(POP_FRONT open next)
    if(next IN_LIST seen OR NOT EXISTS ${next})
      continue()
    endif()
    list(APPEND seen ${next})
    file(STRINGS ${next} lines REGEX "^#include \"tests/|RunOnPtxMachine\\(|kFakeCuda")
    foreach(line IN LISTS lines)
      if(line MATCHES "RunOnPtxMachine|kFakeCuda|tests/gpu/ptx/machine.h")
        set(runs TRUE)
      elseif(line MATCHES "\"(tests/.*)\\.h\"")
        list(APPEND open ${PROJECT_SOURCE_DIR}/${CMAKE_MATCH_1}.h ${PROJECT_SOURCE_DIR}/${CMAKE_MATCH_1}.cc)
      endif()
    endforeach()
  endwhile()
  set(${variable} ${runs} PARENT_SCOPE)
endfunction()

# ob_label_ptx_machine(): labels the folder's tests that ob_test has made, when all is said of them: those whose sources run
# kernels on the machine, and those that are told where the driver lies. A target with the property ob_without_ptx_machine
# includes a header that runs kernels for something else.
function(ob_label_ptx_machine)
  get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(entry ${target} ob_entry)
    if(NOT entry)
      continue()
    endif()
    get_target_property(sources ${target} SOURCES)
    list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ REGEX "^[^/]")
    get_target_property(without ${target} ob_without_ptx_machine)
    set(runs FALSE)
    if(NOT without)
      ob_runs_on_ptx_machine(runs ${sources})
    endif()
    if(runs)
      set_property(TEST ${entry} APPEND PROPERTY LABELS ptx_machine)
    endif()
  endforeach()
endfunction()
